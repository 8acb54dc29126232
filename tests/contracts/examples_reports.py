"""Examples of reports."""

from libs.contracts.facts import (
    Cpu,
    Facts,
    Gate,
    Gpu,
    Kernel,
    LoadedDriver,
    Memory,
    Mig,
    OperatingSystem,
    PciDevice,
)
from libs.contracts.reports import (
    Evidence,
    Finding,
    Holder,
    Holders,
    Outcome,
    PodUse,
    Preflight,
    Progress,
    Refusal,
    RefusalCode,
    Report,
    Result,
    StateBody,
    Usage,
    ValidationStep,
)
from tests.contracts import examples
from tests.contracts.examples import Example


def _report(component: str, body: StateBody) -> Example:
    message = Report.of(
        body,
        node=examples.NODE,
        node_uid=examples.NODE_UID,
        boot_id=examples.BOOT,
        component=component,
        at=examples.T0 + 30.5,
    )
    return Example(message, body)


FACTS = Facts(
    pci=(
        PciDevice(
            address="0000:17:00.0",
            vendor="10de",
            device="2330",
            device_class="030200",
            subsystem_vendor="10de",
            subsystem_device="16c1",
            driver="nvidia",
            numa_node=1,
            sriov_total_vfs=16,
            iommu_group="42",
        ),
    ),
    kernel=Kernel(
        release=examples.KERNEL,
        selinux=True,
        secure_boot=True,
        config={"CONFIG_MODULE_SIG": "y"},
        modules=("nvidia", "nvidia_uvm"),
    ),
    os=OperatingSystem(
        id="ubuntu", version_id="24.04", name="Ubuntu 24.04.1 LTS", ostree_version="41.2026"
    ),
    cpu=Cpu(
        architecture="amd64",
        vendor="GenuineIntel",
        family=6,
        model=143,
        count=224,
        multithreading=True,
        flags=("avx512f", "amx_tile"),
    ),
    memory=Memory(bytes=2_199_023_255_552, numa_nodes=2, swap=True),
    machine="DGXH100",
    runtime="containerd://2.0.1",
    gpus=(
        Gpu(
            uuid=examples.GPU,
            index=1,
            minor=1,
            pci="00000000:17:00.0",
            name="NVIDIA H100 80GB HBM3",
            memory_mib=81_559,
            compute_capability=(9, 0),
            mig_capable=True,
            mig_mode=True,
            migs=(
                Mig(
                    uuid="MIG-9f2e4c1a-0b3d-5e6f-8a7b-2c3d4e5f6a7b",
                    profile="1g.10gb",
                    gpu_instance=7,
                    compute_instance=1,
                    memory_mib=9_856,
                ),
            ),
            fabric="7c3e0b1a-55aa-4e0e-9d3c-3a0f1b2c4d5e.32766",
            hung=True,
        ),
    ),
    driver=LoadedDriver(
        version="580.95.05",
        loaded_at=examples.T0 + 25,
        cuda="13.0",
        modules=("nvidia", "nvidia_uvm", "nvidia_modeset"),
        open_kernel_modules=True,
        preinstalled=True,
    ),
    gate=Gate(
        admitted_pod_uid=examples.OLD_POD,
        admitted_label=examples.LABEL_BEFORE,
        waiting_pod_uid=examples.NEW_POD,
        waiting_label=examples.LABEL,
        why="a container of the admitted pod is still on the machine",
    ),
    nvml_error="ERROR_GPU_IS_LOST on 00000000:17:00.0",
)

EVIDENCE = Evidence(
    epoch=examples.EPOCH,
    token=examples.TOKEN,
    op=examples.OP,
    passed=True,
    label=examples.LABEL,
    node_uid=examples.NODE_UID,
    boot_id=examples.BOOT,
    kernel=examples.KERNEL,
    driver_pod_uid=examples.NEW_POD,
    driver_started=examples.T0 + 20,
    driver_version="580.95.05",
    driver_digest=examples.INSTALL,
    runtime_digest="sha256:3b1f00c2",
    mig_digest="sha256:e4c8a771",
    steps=(
        ValidationStep(name="driver", passed=True, message="580.95.05 is loaded", seconds=0.4),
        ValidationStep(name="cuda", passed=True, message="1 of 1 GPUs computed", seconds=2.75),
    ),
    at=examples.T0 + 60,
)

EXAMPLES = {
    "state.facts": _report("driver", FACTS),
    "state.progress": _report(
        "driver",
        Progress(
            epoch=examples.EPOCH,
            token=examples.TOKEN,
            op=examples.OP,
            command="swap",
            phase="unload",
            detail="nvidia_uvm: held by pid 4711 (nvidia-smi)",
            since=examples.T0 + 12,
        ),
    ),
    "state.result": _report(
        "driver",
        Result(
            epoch=examples.EPOCH,
            token=examples.TOKEN,
            op=examples.OP,
            command="swap",
            outcome=Outcome.FAILED,
            code="busy",
            message="nvidia_uvm is held by pid 4711 (nvidia-smi) of no pod; end it, then retry",
            started=examples.T0 + 10,
            finished=examples.T0 + 130,
        ),
    ),
    "state.result@done": _report(
        "validator",
        Result(
            epoch=examples.EPOCH,
            token=examples.TOKEN,
            op=examples.OP,
            command="validate",
            outcome=Outcome.DONE,
            started=examples.T0 + 40,
            finished=examples.T0 + 60,
        ),
    ),
    "state.refusal": _report(
        "driver",
        Refusal(
            code=RefusalCode.OLDER_EPOCH,
            message="epoch 6 is below 7, the highest seen: its leader was replaced",
            epoch=examples.EPOCH - 1,
            token=examples.TOKEN,
            op=examples.OP,
            check="check-41",
            command="swap",
        ),
    ),
    "state.holders": _report(
        "driver",
        Holders(
            check="check-41",
            holders=(
                Holder(
                    pid=4711,
                    comm="python3",
                    devices=("/dev/nvidia0", "/dev/nvidia-uvm"),
                    pod_uid=examples.JOB_POD,
                    container_id="containerd://5c0ffee5",
                ),
            ),
        ),
    ),
    "state.preflight": _report(
        "driver",
        Preflight(
            check="check-41",
            label=examples.LABEL,
            findings=(
                Finding(
                    code="nouveau",
                    message="the module nouveau is loaded and holds 0000:17:00.0",
                    remedy="blacklist nouveau and reboot the node",
                ),
            ),
        ),
    ),
    "state.evidence": _report("validator", EVIDENCE),
    "state.usage": _report(
        "driver",
        Usage(
            pods=(PodUse(pod_uid=examples.JOB_POD, gpus=8, processes=16),),
            host_processes=1,
        ),
    ),
}
