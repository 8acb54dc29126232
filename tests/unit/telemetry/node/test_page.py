"""The metrics page of a node equals that of dcgm-exporter, character by character."""

from typing import Any, Literal

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample, InstanceSample
from services.telemetry.node.page import DRIVER_VERSION, FIELDS, bus_id, exporter_page
from services.telemetry.node.sampler import Sweep, XidCounts
from services.telemetry.node.xids import xid_name

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

GPU = Gpu(
    uuid="GPU-5d0a1c9e",
    index=1,
    minor=3,
    pci="0000:1b:00.0",
    name="NVIDIA H100 80GB HBM3",
    memory_mib=81559,
)
LABELS = (
    'gpu="1",UUID="GPU-5d0a1c9e",pci_bus_id="00000000:1B:00.0",device="nvidia3",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-1.example",DCGM_FI_DRIVER_VERSION="580.95.05"'
)


def render(
    *samples: GpuSample,
    gpu: Gpu = GPU,
    node: str = "gpu-1.example",
    hostname_label: Literal["Hostname", "hostname"] = "Hostname",
) -> str:
    sweep = Sweep(driver_version="580.95.05", gpus=(gpu,), samples=samples)
    return exporter_page(sweep, node=node, hostname_label=hostname_label).decode()


def sample(**more: Any) -> GpuSample:
    return GpuSample(uuid=GPU.uuid, index=1, pci=GPU.pci, **more)


def full_sample() -> GpuSample:
    """Return a sample in which every value is set and different."""
    values = {
        name: number
        for number, name in enumerate(GpuSample.__struct_fields__)
        if name not in ("uuid", "index", "pci", "pod_uid", "model", "instances")
    }
    return sample(**values)


def test_names_types_and_help_lines_are_those_of_dcgm_exporter() -> None:
    wanted = [tuple(line.split(", ", 2)) for line in DCGM_FIELDS.strip().splitlines()]
    assert [(each.name, each.type, each.help) for each in FIELDS] == wanted
    assert DRIVER_VERSION == "DCGM_FI_DRIVER_VERSION"


def test_a_sample_is_rendered_as_by_dcgm_exporter() -> None:
    assert render(sample(power_w=412.5, gpu_utilization=97)) == (
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
        "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
        f"DCGM_FI_DEV_POWER_USAGE{{{LABELS}}} 412.500000\n"
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 97\n"
    )


def test_an_xid_has_its_code_and_name() -> None:
    line = render(sample(xid=79)).splitlines()[-1]
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


def test_every_xid_up_to_the_last_has_a_name() -> None:
    assert [code for code in range(173) if xid_name(code) == "Unknown Error"] == []


def test_every_value_is_rendered_and_parses() -> None:
    families = {each.name: each for each in text_string_to_metric_families(render(full_sample()))}
    assert len(families) == len(FIELDS)
    for field in FIELDS:
        found = families[field.name]
        assert (found.type, found.documentation) == (field.type, field.help)
        assert [each.value for each in found.samples] == [field.of(full_sample())]


def test_unread_values_are_not_rendered() -> None:
    assert render(sample()) == ""
    assert render(sample(power_w=float("nan"))) == ""
    assert render() == ""


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_values_that_cannot_be_true_are_not_rendered(value: float) -> None:
    assert render(sample(power_w=value)) == ""


def test_a_divided_gpu_has_a_sample_per_instance() -> None:
    small = InstanceSample(gpu_instance=9, profile="1g.10gb", framebuffer_used_mib=100)
    large = InstanceSample(gpu_instance=2, profile="3g.40gb", framebuffer_used_mib=300)
    whole = sample(temperature_c=40, framebuffer_used_mib=400, instances=(large, small))
    lines = [line for line in render(whole).splitlines() if not line.startswith("#")]
    before, after = LABELS.split(",Hostname=")
    labels = [
        f'{{{before},GPU_I_PROFILE="{profile}",GPU_I_ID="{number}",Hostname={after}}}'
        for profile, number in (("3g.40gb", 2), ("1g.10gb", 9))
    ]
    assert lines == [
        *(f"DCGM_FI_DEV_GPU_TEMP{each} 40" for each in labels),
        f"DCGM_FI_DEV_FB_USED{labels[0]} 300",
        f"DCGM_FI_DEV_FB_USED{labels[1]} 100",
    ]


def test_zero_is_rendered() -> None:
    assert render(sample(gpu_utilization=0)).endswith("} 0\n")


def test_each_metric_has_one_header_for_all_gpus() -> None:
    other = GpuSample(uuid="GPU-unknown", index=2, pci="0000:1c:00.0", temperature_c=50)
    lines = render(sample(temperature_c=40), other).splitlines()
    assert len(lines) == 4
    assert 'device="nvidia2",modelName=""' in lines[3]


def test_labels_are_escaped() -> None:
    name = 'a "quoted" \\ name\nin two lines'
    text = render(sample(temperature_c=40), gpu=msgspec.structs.replace(GPU, name=name))
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels["modelName"] == name
    assert len(text.splitlines()) == 3


def test_the_hostname_label_may_be_that_of_newer_exporters() -> None:
    text = render(sample(temperature_c=40), hostname_label="hostname")
    assert ',hostname="gpu-1.example",' in text
    assert "Hostname" not in text


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
