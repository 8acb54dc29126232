"""Telemetry batches, encoded as msgpack arrays to save space. New fields are only appended."""

from typing import Final

import msgspec

from libs.contracts.message import MAJOR, MalformedMessage, version_mismatch
from libs.contracts.numbers import Count, Integer


class InstanceSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is measured of one GPU instance of a GPU that MIG divides."""

    gpu_instance: Count
    profile: str
    """The profile of its first MIG device, `1g.10gb`; empty if it cannot be told."""
    framebuffer_free_mib: Integer | None = None
    framebuffer_used_mib: Integer | None = None
    framebuffer_reserved_mib: Integer | None = None
    graphics_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    fp64_active: float | None = None
    fp32_active: float | None = None
    fp16_active: float | None = None
    integer_active: float | None = None
    tensor_dfma_active: float | None = None
    tensor_hmma_active: float | None = None
    tensor_imma_active: float | None = None


class GpuSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metrics of one GPU at one time. Values that could not be read are None, never 0."""

    uuid: str
    index: Count
    pci: str
    sm_clock_mhz: Integer | None = None
    memory_clock_mhz: Integer | None = None
    memory_temperature_c: Integer | None = None
    temperature_c: Integer | None = None
    power_w: float | None = None
    energy_mj: Integer | None = None
    pcie_replays: Integer | None = None
    gpu_utilization: Integer | None = None
    memory_utilization: Integer | None = None
    encoder_utilization: Integer | None = None
    decoder_utilization: Integer | None = None
    xid: Integer | None = None
    framebuffer_free_mib: Integer | None = None
    framebuffer_used_mib: Integer | None = None
    framebuffer_reserved_mib: Integer | None = None
    nvlink_mb_per_s: Integer | None = None
    remapped_uncorrectable: Integer | None = None
    remapped_correctable: Integer | None = None
    remap_failure: Integer | None = None
    graphics_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_tx_bytes_per_s: Integer | None = None
    pcie_rx_bytes_per_s: Integer | None = None
    ecc_volatile_uncorrected: Integer | None = None
    clock_reasons: Integer | None = None
    pod_uid: str | None = None
    ecc_volatile_corrected: Integer | None = None
    ecc_aggregate_corrected: Integer | None = None
    ecc_aggregate_uncorrected: Integer | None = None
    retired_corrected: Integer | None = None
    """Pages retired because of single-bit errors; Ampere and later remap rows instead."""
    retired_uncorrected: Integer | None = None
    retired_pending: Integer | None = None
    remap_pending: Integer | None = None
    power_limit_w: float | None = None
    performance_state: Integer | None = None
    power_violation_ns: Integer | None = None
    """Total time for which clocks were reduced to keep the power limit."""
    thermal_violation_ns: Integer | None = None
    sync_boost_violation_ns: Integer | None = None
    board_limit_violation_ns: Integer | None = None
    low_utilization_violation_ns: Integer | None = None
    reliability_violation_ns: Integer | None = None
    nvlink_flit_errors: Integer | None = None
    nvlink_data_errors: Integer | None = None
    nvlink_replay_errors: Integer | None = None
    nvlink_recovery_errors: Integer | None = None
    vgpu_licensed: Integer | None = None
    """1 with a valid vGPU licence, 0 without; None if that cannot be asked."""
    sm_active: float | None = None
    sm_occupancy: float | None = None
    fp64_active: float | None = None
    fp32_active: float | None = None
    fp16_active: float | None = None
    minor: Integer | None = None
    """The number of its device file; None if that is not known."""
    model: str = ""
    integer_active: float | None = None
    tensor_dfma_active: float | None = None
    tensor_hmma_active: float | None = None
    tensor_imma_active: float | None = None
    nvlink_tx_bytes_per_s: Integer | None = None
    nvlink_rx_bytes_per_s: Integer | None = None
    nvlink_first_mb_per_s: Integer | None = None
    """Of the GPU's first NVLink alone."""
    power_management_limit_w: float | None = None
    video_clock_mhz: Integer | None = None
    pcie_link_generation: Integer | None = None
    pcie_link_width: Integer | None = None
    instances: tuple[InstanceSample, ...] = ()
    """The GPU instances, by number, of a GPU that MIG divides."""
    late_s: float | None = None
    """Seconds since it was measured, where the GPU has not answered since; None: just now."""

    @property
    def is_measured(self) -> bool:
        """Whether the GPU answered: a sample without an answer names it and nothing else."""
        return any(getattr(self, name) is not None for name in MEASURED)


MEASURED: Final = tuple(
    name
    for name in GpuSample.__struct_fields__
    if name
    not in ("uuid", "index", "pci", "xid", "pod_uid", "minor", "model", "instances", "late_s")
)
"""What comes of measuring alone."""


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metrics of all GPUs of a node at one time."""

    v: Count
    node: str
    node_uid: str
    boot_id: str
    run: str
    """A random id of the agent's run, within which `seq` counts."""
    seq: Count
    at: float
    driver_version: str
    gpus: list[GpuSample]
    """Empty while there is no driver, or while the agent has released the GPUs on command."""
    xids: Count = 0
    """Total Xid errors of all GPUs in this run; cumulative, so that lost batches lose none."""


class _Head(msgspec.Struct, array_like=True):
    v: Count


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Batch)
_head = msgspec.msgpack.Decoder(_Head)


def encode(batch: Batch) -> bytes:
    return _encoder.encode(batch)


def decode(data: bytes) -> Batch:
    """Decode a batch, or raise `MalformedMessage`."""
    try:
        batch = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(_reason(data, error)) from None
    if batch.v != MAJOR:
        raise MalformedMessage(version_mismatch("Batch", batch.v))
    return batch


def _reason(data: bytes, error: Exception) -> str:
    try:
        version = _head.decode(data).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        version = MAJOR
    return (
        version_mismatch("Batch", version) if version != MAJOR else f"not a readable Batch: {error}"
    )
