"""Telemetry batches, encoded as msgpack arrays to save space. New fields are only appended."""

import msgspec

from libs.contracts.message import MAJOR, MalformedMessage, version_mismatch


class GpuSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metrics of one GPU at one time. Values that could not be read are None, never 0."""

    uuid: str
    index: int
    pci: str
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_temperature_c: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    energy_mj: int | None = None
    pcie_replays: int | None = None
    gpu_utilization: int | None = None
    memory_utilization: int | None = None
    encoder_utilization: int | None = None
    decoder_utilization: int | None = None
    xid: int | None = None
    framebuffer_free_mib: int | None = None
    framebuffer_used_mib: int | None = None
    framebuffer_reserved_mib: int | None = None
    nvlink_mb_per_s: int | None = None
    remapped_uncorrectable: int | None = None
    remapped_correctable: int | None = None
    remap_failure: int | None = None
    graphics_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_tx_bytes_per_s: int | None = None
    pcie_rx_bytes_per_s: int | None = None
    ecc_volatile_uncorrected: int | None = None
    clock_reasons: int | None = None
    pod_uid: str | None = None


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metrics of all GPUs of a node at one time."""

    v: int
    node: str
    node_uid: str
    boot_id: str
    run: str
    """A random id of the agent's run, within which `seq` counts."""
    seq: int
    at: float
    driver_version: str
    gpus: list[GpuSample]
    """Empty while there is no driver, or while the agent has released the GPUs on command."""
    xids: int = 0
    """Total Xid errors of all GPUs in this run; cumulative, so that lost batches lose none."""


class _Head(msgspec.Struct, array_like=True):
    v: int


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
