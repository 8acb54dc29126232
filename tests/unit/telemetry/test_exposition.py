"""The metrics page of a node equals that of dcgm-exporter, character by character."""

from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.contracts.facts import Mig
from libs.contracts.telemetry import GpuSample, InstanceSample
from libs.health.xids import LAST_KNOWN
from libs.host.podresources.assignments import PodContainer, PodsByGpu
from services.telemetry.exposition import (
    HOSTNAME_LABEL,
    LATE,
    HostnameLabel,
    NodeSamples,
    render,
    rows,
)
from services.telemetry.field import NumberField, TextField, bus_id
from services.telemetry.fields import DRIVER_VERSION, FIELDS
from services.telemetry.metric_list import DEFAULT_LIST, MetricList, parse_list
from services.telemetry.node.sampler import XidCounts
from services.telemetry.xids import xid_name
from tests.builders import gpus
from tests.builders.gpus import gpu

DCGM_FIELDS = """
DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_MEM_CLOCK, gauge, Memory clock frequency (in MHz).
DCGM_FI_DEV_MEMORY_TEMP, gauge, Memory temperature (in C).
DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy consumption since boot (in mJ).
DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, Total number of PCIe retries.
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Memory utilization (in %).
DCGM_FI_DEV_ENC_UTIL, gauge, Encoder utilization (in %).
DCGM_FI_DEV_DEC_UTIL, gauge, Decoder utilization (in %).
DCGM_FI_DEV_XID_ERRORS, gauge, Value of the last XID error encountered.
DCGM_FI_DEV_FB_FREE, gauge, Framebuffer memory free (in MiB).
DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).
DCGM_FI_DEV_FB_RESERVED, gauge, Framebuffer memory reserved (in MiB).
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter, \
Total number of NVLink bandwidth counters for all lanes.
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, vGPU License status
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Number of remapped rows for uncorrectable errors
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS, counter, Number of remapped rows for correctable errors
DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether remapping of rows has failed
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Ratio of time the graphics engine is active.
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Ratio of cycles the tensor (HMMA) pipe is active.
DCGM_FI_PROF_DRAM_ACTIVE, gauge, \
Ratio of cycles the device memory interface is active sending or receiving data.
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, The rate of data transmitted over the PCIe bus - \
including both protocol headers and data payloads - in bytes per second.
DCGM_FI_PROF_PCIE_RX_BYTES, gauge, The rate of data received over the PCIe bus - \
including both protocol headers and data payloads - in bytes per second.
"""
"""dcgm-exporter's default list, less the driver's version, which is a label."""

GPU = gpu(
    1,
    uuid="GPU-5d0a1c9e",
    minor=3,
    pci="0000:1b:00.0",
    serial="1652823054321",
    migs=(
        Mig(uuid="MIG-a", profile="3g.40gb", gpu_instance=2),
        Mig(uuid="MIG-b", profile="1g.10gb", gpu_instance=9),
    ),
)
LABELS = (
    'gpu="1",UUID="GPU-5d0a1c9e",pci_bus_id="00000000:1B:00.0",device="nvidia3",'
    'modelName="NVIDIA H100 80GB HBM3",hostname="gpu-1.example",DCGM_FI_DRIVER_VERSION="580.95.05"'
)


def page(
    *samples: GpuSample,
    node: str = "gpu-1.example",
    hostname_label: HostnameLabel = HOSTNAME_LABEL,
    listed: MetricList = DEFAULT_LIST,
    pods: PodsByGpu | None = None,
    virtual_gpus: bool = False,
) -> str:
    described = NodeSamples(
        node=node, driver_version="580.95.05", samples=samples, gpus={GPU.uuid: GPU}
    )
    found = rows(
        [described],
        listed,
        hostname_label=hostname_label,
        pods=pods or {},
        virtual_gpus=virtual_gpus,
    )
    return render(listed.metrics, list(found)).decode()


sample = partial(gpus.sample, 1, uuid=GPU.uuid, pci=GPU.pci, minor=GPU.minor, model=GPU.name)


NAMING = {"uuid", "index", "pci", "pod_uid", "minor", "model", "instances", "late_s"}
"""What names a GPU or its sample, and is no value."""


def full_sample() -> GpuSample:
    """Return a sample in which every value is set and different."""
    fields = enumerate(GpuSample.__struct_fields__)
    return sample(**{name: number for number, name in fields if name not in NAMING})


def test_names_types_and_help_lines_are_those_of_dcgm_exporter() -> None:
    wanted = [tuple(line.split(", ", 2)) for line in DCGM_FIELDS.strip().splitlines()]
    assert [(each.field.name, each.type, each.help) for each in DEFAULT_LIST.metrics] == wanted
    assert [label.name for label in DEFAULT_LIST.labels] == [DRIVER_VERSION]
    assert DRIVER_VERSION == "DCGM_FI_DRIVER_VERSION"
    assert len(wanted) + 1 == 26


def test_a_sample_is_rendered_as_by_dcgm_exporter() -> None:
    assert page(sample(gpu_utilization=0)).endswith("} 0\n")
    assert page(sample(power_w=412.5, gpu_utilization=97)) == (
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 412.500000\n"
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 97\n"
    )


def test_an_xid_has_its_code_and_name() -> None:
    line = page(sample(xid=79)).splitlines()[-1]
    error = 'err_code="79",err_msg="GPU has fallen off the bus"'
    assert line == f"DCGM_FI_DEV_XID_ERRORS{{{LABELS},{error}}} 79"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, "No Error"),
        (1, "Invalid or corrupted push buffer stream"),
        (31, "GPU memory page fault"),
        (48, "Double Bit ECC Error"),
        (62, "Internal micro-controller halt"),
        (72, "CE5: Unknown Error"),
        (75, "CE6: Unknown Error"),
        (98, "NVDEC7 Error"),
        (105, "NVJPG7 Error"),
        (119, "GSP RPC Timeout"),
        (126, "Robust Channel CE10 Error"),
        (135, "Robust Channel CE19 Error"),
        (172, "Uncorrectable SRAM Error"),
        (173, "Unknown Error"),
        (-1, "Unknown Error"),
    ],
)
def test_xids_have_the_names_of_the_vendor(code: int, name: str) -> None:
    assert xid_name(code) == name


def test_every_xid_up_to_the_last_whose_meaning_is_known_has_a_name() -> None:
    assert [code for code in range(LAST_KNOWN + 1) if xid_name(code) == "Unknown Error"] == []


ALL_FIELDS = "".join(
    f"{field.name}, {'label' if isinstance(field, TextField) else field.type}, {field.help}\n"
    for field in FIELDS.values()
)


def test_every_field_is_rendered_and_parses() -> None:
    parsed = parse_list(ALL_FIELDS)
    assert parsed.problems == ()
    text = page(full_sample(), listed=parsed.metrics)
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert len(families) == len(parsed.metrics.metrics)
    for metric in parsed.metrics.metrics:
        found = families[metric.field.name]
        assert (found.type, found.documentation) == (metric.type, metric.help)
        assert [each.value for each in found.samples] == [
            pytest.approx(metric.field.of(full_sample()))
        ]
    labels = families["DCGM_FI_DEV_GPU_TEMP"].samples[0].labels
    assert {name: labels[name] for name in labels if name.startswith("DCGM_FI_")} == {
        "DCGM_FI_DRIVER_VERSION": "580.95.05",
        "DCGM_FI_DEV_NAME": GPU.name,
        "DCGM_FI_DEV_UUID": GPU.uuid,
        "DCGM_FI_DEV_PCI_BUSID": "00000000:1B:00.0",
        "DCGM_FI_DEV_SERIAL": "1652823054321",
    }


def test_every_measured_value_is_a_field() -> None:
    """A value that reaches no field would be measured in vain."""
    full = full_sample()
    shown = {field.of(full) for field in FIELDS.values() if isinstance(field, NumberField)}
    names = set(GpuSample.__struct_fields__) - NAMING
    assert {name for name in names if getattr(full, name) not in shown} == set()


def test_a_sample_of_an_earlier_time_is_marked_and_others_are_not() -> None:
    assert LATE not in page(full_sample())
    text = page(sample(temperature_c=40, late_s=2.5))
    (marked,) = [line for line in text.splitlines() if line.startswith(LATE)]
    assert marked.endswith(" 2.500000")
    assert "DCGM_FI_DEV_GPU_TEMP{" in text
    assert len(list(text_string_to_metric_families(text))) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, None])
def test_values_that_are_absent_or_cannot_be_true_are_not_rendered(value: float | None) -> None:
    assert page(sample(power_w=value)) == ""


def test_a_divided_gpu_has_a_sample_per_instance() -> None:
    small = InstanceSample(gpu_instance=9, profile="1g.10gb", framebuffer_used_mib=100)
    large = InstanceSample(gpu_instance=2, profile="3g.40gb", framebuffer_used_mib=300)
    whole = sample(temperature_c=40, framebuffer_used_mib=400, instances=(large, small))
    lines = [line for line in page(whole).splitlines() if not line.startswith("#")]
    before, after = LABELS.split(",hostname=")
    labels = [
        f'{{{before},GPU_I_PROFILE="{profile}",GPU_I_ID="{number}",hostname={after}}}'
        for profile, number in (("3g.40gb", 2), ("1g.10gb", 9))
    ]
    assert lines == [
        *(f"DCGM_FI_DEV_GPU_TEMP{each} 40" for each in labels),
        f"DCGM_FI_DEV_FB_USED{labels[0]} 300",
        f"DCGM_FI_DEV_FB_USED{labels[1]} 100",
    ]


TRAINER = PodContainer("ml", "trainer-0", "main")
SIDECAR = PodContainer("ml", "trainer-1", "side", replica="3")


def test_the_pod_of_a_gpu_is_named_after_the_other_labels() -> None:
    hot = sample(temperature_c=40, xid=79)
    temperature, xid = page(hot, pods={(GPU.uuid, None): (TRAINER,)}).splitlines()[2::3]
    pod = 'namespace="ml",pod="trainer-0"'
    assert temperature == f'DCGM_FI_DEV_GPU_TEMP{{{LABELS},container="main",{pod}}} 40'
    error = 'err_code="79",err_msg="GPU has fallen off the bus"'
    assert xid == f'DCGM_FI_DEV_XID_ERRORS{{{LABELS},container="main",{error},{pod}}} 79'


def test_the_last_of_several_containers_names_a_gpu_or_each_has_a_sample() -> None:
    pods: PodsByGpu = {(GPU.uuid, None): (TRAINER, SIDECAR)}
    hot = sample(temperature_c=40)
    (line,) = page(hot, pods=pods).splitlines()[2:]
    assert line.endswith(',container="side",namespace="ml",pod="trainer-1"} 40')
    first, second = page(hot, pods=pods, virtual_gpus=True).splitlines()[2:]
    assert first.endswith(',container="main",namespace="ml",pod="trainer-0"} 40')
    assert second.endswith(',container="side",namespace="ml",pod="trainer-1",vgpu="3"} 40')


def test_the_pod_of_an_instance_names_that_instance_alone() -> None:
    instances = tuple(
        InstanceSample(gpu_instance=mig.gpu_instance, profile=mig.profile) for mig in GPU.migs
    )
    pods: PodsByGpu = {(GPU.uuid, 9): (TRAINER,), (GPU.uuid, None): (SIDECAR,)}
    large, small = page(sample(temperature_c=40, instances=instances), pods=pods).splitlines()[2:]
    assert 'GPU_I_ID="2"' in large
    assert "pod=" not in large
    assert 'GPU_I_ID="9"' in small
    assert 'pod="trainer-0"' in small


def test_each_metric_has_one_header_for_all_gpus() -> None:
    other = GpuSample(uuid="GPU-unknown", index=2, pci="0000:1c:00.0", temperature_c=50)
    lines = page(sample(temperature_c=40), other).splitlines()
    assert len(lines) == 4
    assert 'device="nvidia2",modelName=""' in lines[3]


def test_labels_are_escaped() -> None:
    name = 'a "quoted" \\ name\nin two lines'
    text = page(sample(temperature_c=40, model=name))
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels["modelName"] == name
    assert len(text.splitlines()) == 3


def test_the_hostname_label_may_be_that_of_older_exporters() -> None:
    text = page(sample(temperature_c=40), hostname_label="Hostname")
    assert ',Hostname="gpu-1.example",' in text
    assert "hostname" not in text


@pytest.mark.parametrize(
    ("pci", "written"),
    [
        ("0000:1b:00.0", "00000000:1B:00.0"),
        ("00000000:1B:00.0", "00000000:1B:00.0"),
        ("10de:c1:00.0", "000010DE:C1:00.0"),
    ],
)
def test_a_pci_address_is_written_as_by_nvml(pci: str, written: str) -> None:
    assert bus_id(pci) == written


def test_every_xid_counts_and_the_last_is_rendered() -> None:
    errors = XidCounts()
    samples = (sample(),)
    assert errors.with_last_xids(samples) == samples
    errors.add({GPU.uuid: (13, 31)})
    errors.add({})
    assert (errors.total, errors.with_last_xids(samples)[0].xid) == (2, 31)
    errors.add({GPU.uuid: (31,), "GPU-other": ()})
    assert (errors.total, errors.with_last_xids(samples)[0].xid) == (3, 31)
