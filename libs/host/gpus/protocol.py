"""What an agent and its NVML process say to each other, over two pipes.

A frame is its length, in four bytes, and a msgpack array. What it says of a GPU is a `Gpu` of
facts, cleaned in the process (`clean`), so that no raw word of NVML leaves it. Measured numbers
cross as NVML returned them, because a rate is made of two of them. Either side refuses a frame that
is too long.
"""

import struct
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.host.gpus.division import GpuDivision

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


class Description(msgspec.Struct, frozen=True, array_like=True):
    """One GPU, and what is wrong with what NVML says about it."""

    gpu: Gpu
    complaints: dict[str, str] = {}
    """The values that cannot be true, and are left out, by name."""
    unread: dict[str, int] = {}
    """What could not be read, with NVML's error: here it is as it was read last."""


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """NVML is initialized."""

    id: int
    driver_version: str
    cuda: str
    """The newest CUDA that the driver supports, `13.1`; empty if the driver lacks it."""
    count: int
    complaints: dict[str, str] = {}


class Described(msgspec.Struct, frozen=True, array_like=True, tag=1):
    id: int
    description: Description


class SampledInstance(msgspec.Struct, frozen=True, array_like=True):
    """What was measured of one GPU instance."""

    gpu_instance: int
    values: dict[str, int | float]


class Sampled(msgspec.Struct, frozen=True, array_like=True, tag=2):
    id: int
    at: float
    """The process's monotonic clock."""
    values: dict[str, int | float]
    """By name, as NVML returned them; values that the driver does not have are absent."""
    instances: list[SampledInstance] = []
    description: Description | None = None
    """If it was asked."""


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
    division: GpuDivision
    """Without the UUID."""
    complaints: dict[str, str] = {}


class Changed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The driver made a change, or accepted one of the MIG mode."""

    id: int
    status: int = 0
    """What keeps a change of the MIG mode from taking effect, as NVML's error; 0: nothing."""


class Linked(msgspec.Struct, frozen=True, array_like=True, tag=7):
    id: int
    ends: tuple[str, ...]
    """The PCI address at the other end of each active link."""
    complaints: dict[str, str] = {}


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
