"""What an agent and its NVML process say to each other, over two pipes.

A frame is its length, in four bytes, and a msgpack array. Values are as NVML returned them: the
agent's side cleans them (`clean`). Either side refuses a frame that is too long.
"""

import struct
from typing import Final

import msgspec

LENGTH: Final = struct.Struct(">I")
MAX_FRAME: Final = 1 << 20
"""Bytes. The description of a GPU with all MIG devices has about 4,000."""
MAX_GPUS: Final = 64
"""The most GPUs that are asked; a machine has 16 at most today."""
MAX_MIGS: Final = 64
"""The most MIG devices of a GPU that are read; a GPU has 8 at most today."""
NO_GPU: Final = -1
"""Stands for the thread of the calls that name no GPU."""


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A question to the thread of one GPU, or of none."""

    id: int
    gpu: int = NO_GPU


class Open(Ask, frozen=True, array_like=True, tag=0):
    """Load and initialize NVML, and start a thread per GPU."""

    events: bool = True
    """Whether to wait for XIDs, which keeps every GPU open once more."""


class Describe(Ask, frozen=True, array_like=True, tag=1):
    """Describe one GPU."""


class Sample(Ask, frozen=True, array_like=True, tag=2):
    """Measure one GPU."""

    describes: bool = False
    """Whether to describe it, too."""


class Divide(Ask, frozen=True, array_like=True, tag=3):
    """Return how one GPU is divided."""


class SetMigMode(Ask, frozen=True, array_like=True, tag=4):
    on: bool = False


class CreateInstance(Ask, frozen=True, array_like=True, tag=5):
    """Create a GPU instance, with compute instances of these slices."""

    profile: int = 0
    """The profile's id."""
    start: int = 0
    size: int = 0
    compute: tuple[int, ...] = ()


class DestroyInstance(Ask, frozen=True, array_like=True, tag=6):
    """Destroy a GPU instance and its compute instances."""

    instance: int = 0


class ListLinks(Ask, frozen=True, array_like=True, tag=7):
    """Return what is at the other ends of one GPU's NVLinks."""


class Ping(Ask, frozen=True, array_like=True, tag=8):
    """Answer at once, without NVML: that shows that the process runs."""


class DescribeAnew(Ask, frozen=True, array_like=True, tag=9):
    """Describe one GPU in a new thread, which takes the place of one that still waits in NVML."""


Change = SetMigMode | CreateInstance | DestroyInstance
GpuRequest = Describe | Sample | Divide | ListLinks | DescribeAnew | Change
"""The questions to one GPU."""
Request = Open | Ping | GpuRequest


class RawMig(msgspec.Struct, frozen=True, array_like=True):
    """A MIG device."""

    uuid: bytes
    name: bytes
    gpu_instance: int | None = None
    compute_instance: int | None = None
    profile: int | None = None
    """The number of the GPU instance's profile in NVML's enum; None if that may not be asked."""
    memory_mib: int | None = None
    multiprocessors: int | None = None
    gpu_slices: int | None = None
    compute_slices: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg_engines: int | None = None
    ofa_engines: int | None = None
    number: int | None = None
    """By which NVML has the device on its GPU."""


class RawFabric(msgspec.Struct, frozen=True, array_like=True):
    """A GPU's registration with the fabric manager."""

    cluster: bytes
    clique: int
    state: int
    status: int


class RawGpu(msgspec.Struct, frozen=True, array_like=True):
    """One GPU. Values that the driver does not have are None."""

    uuid: bytes | None = None
    pci: bytes | None = None
    name: bytes | None = None
    serial: bytes | None = None
    minor: int | None = None
    memory: int | None = None
    """Bytes."""
    compute_capability: tuple[int, int] | None = None
    mig: tuple[int, int] | None = None
    """The current and the pending mode."""
    migs: list[RawMig] = []
    fabric: RawFabric | None = None
    nvlinks: list[int] = []
    """By number of the link: 0 if it is not active."""
    recovery: int | None = None
    unread: dict[str, int] = {}
    """What could not be read, with NVML's error: here it is as it was read last."""


class RawProfile(msgspec.Struct, frozen=True, array_like=True):
    """A kind of GPU instance."""

    number: int
    """In NVML's enum."""
    id: int
    slices: int
    memory_mib: int
    placements: list[tuple[int, int]] = []
    """Start and size."""
    most: int = 0
    """How many of it the GPU has at most."""


class RawInstance(msgspec.Struct, frozen=True, array_like=True):
    """A GPU instance."""

    id: int
    profile: int
    """The profile's id."""
    start: int
    size: int
    compute: list[int] = []
    """The slices of each compute instance."""


class RawDivision(msgspec.Struct, frozen=True, array_like=True):
    """How one GPU is divided."""

    mig: tuple[int, int]
    """The current and the pending mode."""
    memory: int
    """Bytes."""
    profiles: list[RawProfile] = []
    instances: list[RawInstance] = []


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """NVML is initialized."""

    id: int
    driver_version: bytes
    cuda: int
    count: int


class Described(msgspec.Struct, frozen=True, array_like=True, tag=1):
    id: int
    gpu: RawGpu


class SampledInstance(msgspec.Struct, frozen=True, array_like=True):
    """What was measured of one GPU instance."""

    gpu_instance: int
    values: dict[str, int | float]


class Sampled(msgspec.Struct, frozen=True, array_like=True, tag=2):
    id: int
    at: float
    """The process's monotonic clock."""
    values: dict[str, int | float]
    """By name; values that the driver does not have are absent."""
    instances: list[SampledInstance] = []
    gpu: RawGpu | None = None
    """The description, if it was asked."""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """NVML refused, or the library cannot be loaded."""

    id: int
    code: int
    """NVML's error code; 0 for a defect."""
    detail: str = ""
    control_errno: int = 0
    """Why the driver's first device file cannot be opened; 0 if it can, or was not tried."""


class Event(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A GPU reported an XID. Sent at once, so that none is lost when the process is killed."""

    gpu: int
    xid: int
    at: float
    gpu_instance: int | None = None
    """The one to which the driver attributes it; None: the whole GPU."""


class Divided(msgspec.Struct, frozen=True, array_like=True, tag=5):
    id: int
    gpu: RawDivision


class Changed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The driver made a change, or accepted one of the MIG mode."""

    id: int
    status: int = 0
    """What keeps a change of the MIG mode from taking effect, as NVML's error; 0: nothing."""


class Linked(msgspec.Struct, frozen=True, array_like=True, tag=7):
    id: int
    ends: list[bytes]
    """The PCI address at the other end of each active link."""


class Pong(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The process runs."""

    id: int


Reply = Opened | Described | Sampled | Failed | Event | Divided | Changed | Linked | Pong

_encoder = msgspec.msgpack.Encoder()
requests: Final = msgspec.msgpack.Decoder(Request)
replies: Final = msgspec.msgpack.Decoder(Reply)


class MalformedFrame(Exception):
    """The other side sent no frame of this protocol."""


def frame(content: Request | Reply) -> bytes:
    data = _encoder.encode(content)
    if len(data) > MAX_FRAME:
        raise MalformedFrame(f"a frame of {len(data)} bytes is too long")
    return LENGTH.pack(len(data)) + data


class Frames:
    """Cuts a stream of bytes into replies."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Reply]:
        """Return the replies that are complete; raise `MalformedFrame`."""
        self._data += data
        found: list[Reply] = []
        while len(self._data) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._data)
            if length > MAX_FRAME:
                raise MalformedFrame(f"a frame of {length} bytes is too long")
            end = LENGTH.size + length
            if len(self._data) < end:
                break
            try:
                found.append(replies.decode(self._data[LENGTH.size : end]))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise MalformedFrame(f"not a readable frame: {error}") from None
            del self._data[:end]
        return found
