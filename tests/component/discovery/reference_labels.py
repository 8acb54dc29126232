"""The keys of all labels that GFD 0.20 and NFD 0.19 write; `<…>` stands for a varying part."""

NVIDIA = "nvidia.com/"
FEATURES = "feature.node.kubernetes.io/"

_BASE = ("product", "count", "replicas", "sharing-strategy", "memory")
_MIG = (
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    *(f"engines.{name}" for name in ("copy", "decoder", "encoder", "jpeg", "ofa")),
)

_GFD = (
    "gfd.timestamp",
    "gpu.machine",
    *(f"cuda.driver.{name}" for name in ("major", "minor", "rev")),
    *(f"cuda.driver-version.{name}" for name in ("major", "minor", "revision", "full")),
    *(f"cuda.runtime.{name}" for name in ("major", "minor")),
    *(f"cuda.runtime-version.{name}" for name in ("major", "minor", "full")),
    "mig.capable",
    "mps.capable",
    "gpu.mode",
    "gpu.clique",
    *(f"gpu.{name}" for name in (*_BASE, *_MIG)),
    "gpu.family",
    "gpu.compute.major",
    "gpu.compute.minor",
    "mig.strategy",
    *(f"mig-<profile>.{name}" for name in (*_BASE, *_MIG)),
    "vgpu.present",
    "vgpu.host-driver-version",
    "vgpu.host-driver-branch",
)

_RULES = ("gdrcopy.capable", "gds.capable", "peermem.capable")
"""Of the rules of NFD that come with the GPU Operator."""

_NFD = (
    "pci-<vendor>.present",
    "pci-<vendor>.sriov.capable",
    *(f"kernel-version.{name}" for name in ("full", "major", "minor", "revision")),
    *(f"kernel-config.{name}" for name in ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT")),
    "kernel-selinux.enabled",
    *(f"system-os_release.{name}" for name in ("ID", "VERSION_ID", "OSTREE_VERSION")),
    *(f"system-os_release.VERSION_ID.{name}" for name in ("major", "minor")),
    "cpu-cpuid.<feature>",
    "cpu-cpuid.AVX10_VERSION",
    *(f"cpu-model.{name}" for name in ("vendor_id", "family", "id", "hypervisor")),
    "cpu-hardware_multithreading",
    "cpu-pstate.<property>",
    "cpu-cstate.enabled",
    "cpu-security.<property>",
    "cpu-power.sst_<feature>",
    "cpu-coprocessor.nx_gzip",
    "cpu-cpu_atom",
    "cpu-cpu_core",
    "memory-numa",
    "memory-swap",
    "memory-nv.present",
    "memory-nv.dax",
    "storage-nonrotationaldisk",
    "network-sriov.capable",
    "network-sriov.configured",
    "usb-<device>.present",
    "rdma.capable",
    "rdma.available",
)

REFERENCE = (
    *(f"{NVIDIA}{name}" for name in (*_GFD, *_RULES)),
    *(f"{FEATURES}{name}" for name in _NFD),
)

OPERATOR = (f"{NVIDIA}gpu.present", f"{NVIDIA}gpu.deploy.<operand>")
"""What the GPU Operator itself writes."""
