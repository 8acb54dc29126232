"""Examples of telemetry. The shorter arrays of older senders stay readable."""

import msgspec

from libs.contracts.telemetry import Batch, GpuSample
from tests.contracts import examples
from tests.contracts.examples import Example

SAMPLE = GpuSample(
    uuid=examples.GPU,
    index=1,
    pci="00000000:17:00.0",
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    memory_temperature_c=58,
    temperature_c=51,
    power_w=412.5,
    energy_mj=9_876_543_210,
    pcie_replays=2,
    gpu_utilization=97,
    memory_utilization=61,
    encoder_utilization=3,
    decoder_utilization=4,
    xid=79,
    framebuffer_free_mib=1_024,
    framebuffer_used_mib=79_870,
    framebuffer_reserved_mib=665,
    nvlink_mb_per_s=120_500,
    remapped_uncorrectable=1,
    remapped_correctable=2,
    remap_failure=1,
    graphics_active=0.75,
    tensor_active=0.5,
    dram_active=0.25,
    pcie_tx_bytes_per_s=1_200_000,
    pcie_rx_bytes_per_s=3_400_000,
    ecc_volatile_uncorrected=5,
    clock_reasons=4,
    pod_uid=examples.JOB_POD,
)

BATCH = Batch(
    v=1,
    node=examples.NODE,
    node_uid=examples.NODE_UID,
    boot_id=examples.BOOT,
    run="r-3f9c",
    seq=1441,
    at=examples.T0 + 5,
    driver_version="580.95.05",
    gpus=[SAMPLE],
)

EXAMPLES = {
    "telemetry": Example(BATCH),
    "telemetry@xids": Example(msgspec.structs.replace(BATCH, xids=3)),
}
