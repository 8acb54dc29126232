"""Fill the state of a new machine from its profile: healthy, idle GPUs."""

import ctypes
import hashlib
import uuid

from libs.testing.nvml.codes import FabricState, Return
from libs.testing.nvml.layout import DIGEST, Machine
from libs.testing.nvml.layout_gpu import Gpu
from libs.testing.nvml.layout_mig import MigProfile
from libs.testing.nvml.products import MIB, MigKind, Product
from libs.testing.nvml.profiles import Profile

CUDA = {"535": 12020, "550": 12040, "560": 12060, "570": 12080, "575": 12090, "580": 13000}
"""The newest CUDA version that a branch supports."""

_GPU_IDLE = 1
"""The reason for low clocks of a GPU without work."""

_NVIDIA = 14
"""The brand of all of them, among Quadro, GeForce and others."""

_IDLE_STATE = 8
_IDLE_TEMPERATURE = 30
_IDLE_MEMORY_CLOCK = 405
_PCIE_WIDTH = 16


def fill_machine(machine: Machine, profile: Profile, *, seed: int) -> None:
    machine.layout = DIGEST
    machine.driver_loaded = 1
    machine.driver_loads = 1
    machine.gpu_count = len(profile.addresses)
    for index, (domain, bus) in enumerate(profile.addresses):
        gpu = machine.gpus[index]
        _fill_identity(gpu, profile.product, _random(seed, profile.product.name, index))
        gpu.identity.minor = index
        gpu.identity.pci_domain = domain
        gpu.identity.pci_bus = bus
        _fill_limits(gpu, profile.product)
        _fill_features(gpu, profile)
        _fill_readings(gpu, profile.product)
        _fill_links(gpu, profile, index)
        _fill_mig(gpu, profile.product)


def set_driver(machine: Machine, version: str) -> None:
    """Set the version of the kernel module and of the library, and the CUDA version."""
    machine.driver_version = machine.library_version = version.encode()
    machine.cuda_version = CUDA.get(version.partition(".")[0], CUDA["580"])


def _random(seed: int, name: str, index: int) -> bytes:
    return hashlib.sha256(f"{seed}/{name}/{index}".encode()).digest()


def _fill_identity(gpu: Gpu, product: Product, random: bytes) -> None:
    identity = gpu.identity
    _copy(identity, product)
    identity.uuid = f"GPU-{uuid.UUID(bytes=random[:16], version=4)}".encode()
    identity.serial = f"{1320000000000 + int.from_bytes(random[16:20])}".encode()
    identity.brand = _NVIDIA
    identity.compute_major, identity.compute_minor = product.compute_capability
    identity.memory_total = product.memory_mib * MIB
    identity.memory_reserved = product.reserved_mib * MIB


def _fill_limits(gpu: Gpu, product: Product) -> None:
    limits = gpu.limits
    limits.graphics_clock_mhz = limits.sm_clock_mhz = product.clock_mhz
    limits.memory_clock_mhz = product.memory_clock_mhz
    limits.video_clock_mhz = product.video_clock_mhz
    limits.power_minimum_mw = product.least_power_w * 1000
    limits.power_maximum_mw = limits.power_default_mw = product.power_w * 1000
    limits.temperature_shutdown_c = 92
    limits.temperature_slowdown_c = 89
    limits.temperature_maximum_c = 85
    limits.pcie_generation = product.pcie_generation
    limits.pcie_width = _PCIE_WIDTH


def _fill_features(gpu: Gpu, profile: Profile) -> None:
    product = profile.product
    features = gpu.features
    _copy(features, product)
    features.ecc = 1
    features.row_remapping = not product.page_retirement
    features.mig = bool(product.mig)
    gpu.health.ecc_mode = gpu.health.ecc_mode_pending = 1
    if product.fabric:
        gpu.fabric.state = FabricState.COMPLETED
        gpu.fabric.status = Return.SUCCESS
        gpu.fabric.clique = profile.clique
        if profile.cluster_uuid:
            gpu.fabric.cluster_uuid[:] = uuid.UUID(profile.cluster_uuid).bytes


def _fill_readings(gpu: Gpu, product: Product) -> None:
    readings = gpu.readings
    readings.temperature_c = _IDLE_TEMPERATURE
    readings.memory_temperature_c = _IDLE_TEMPERATURE + 5
    readings.power_mw = product.idle_power_w * 1000
    readings.power_limit_mw = product.power_w * 1000
    readings.graphics_clock_mhz = readings.sm_clock_mhz = product.idle_clock_mhz
    readings.memory_clock_mhz = _IDLE_MEMORY_CLOCK
    readings.video_clock_mhz = product.idle_clock_mhz
    readings.clock_reasons = _GPU_IDLE
    readings.performance_state = _IDLE_STATE
    readings.persistence_mode = 1
    readings.pcie_generation = product.pcie_generation
    readings.pcie_width = _PCIE_WIDTH


def _fill_links(gpu: Gpu, profile: Profile, index: int) -> None:
    product = profile.product
    if product.nvlinks is None:
        return
    peers = {one: other for pair in profile.bridges for one, other in (pair, pair[::-1])}
    links = gpu.links
    links.count = product.nvlinks.count
    links.version = product.nvlinks.version
    links.speed_mbps = product.nvlinks.speed_mbps
    for link in links.link[: links.count]:
        link.active = 1
        link.peer = peers.get(index, -1) + 1


def _fill_mig(gpu: Gpu, product: Product) -> None:
    mig = gpu.mig
    mig.activation = Return.RESET_REQUIRED if product.mig_mode_needs_reset else Return.SUCCESS
    mig.mode_persists = product.mig_mode_needs_reset
    mig.profile_count = len(product.mig)
    for place, kind in zip(mig.profiles, product.mig, strict=False):
        _fill_mig_profile(place, kind)


def _fill_mig_profile(place: MigProfile, kind: MigKind) -> None:
    _copy(place, kind)
    place.instances = kind.most
    place.start_count = len(kind.starts)
    place.starts[: len(kind.starts)] = kind.starts


def _copy(place: ctypes.Structure, source: object) -> None:
    """Set each number and text that the description has under the same name."""
    for name, *_ in place._fields_:
        value = getattr(source, name, None)
        if isinstance(value, int | str):
            setattr(place, name, value.encode() if isinstance(value, str) else value)
