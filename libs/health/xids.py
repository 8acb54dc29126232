"""What each XID of NVIDIA's catalogue means for the health of a GPU."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.gpus import XidCode
from libs.contracts.health import HealthState


class XidScope(StrEnum):
    """What an XID concerns."""

    GPU = "GPU"
    MIG = "MIG device"
    """The MIG device that it names, or the application on a GPU without MIG."""
    APPLICATION = "application"
    NVLINK = "NVLink"
    NODE = "node"


class XidMeaning(msgspec.Struct, frozen=True, kw_only=True):
    """What one XID says of its GPU, and what to do about it."""

    cause: str
    state: HealthState
    """Of the GPU, by this XID alone; `ok` if it says nothing against the GPU."""
    scope: XidScope
    remedy: str


UNCONTAINED: Final = frozenset((95, 140))
"""XIDs of the whole GPU, although the driver may name the instance that found the error."""


def struck_instance(code: int) -> int | None:
    """Return the GPU instance that an XID concerns alone; None for the whole GPU."""
    concerns_node = meaning(code).scope in (XidScope.NODE, XidScope.NVLINK)
    if concerns_node or code in UNCONTAINED or not isinstance(code, XidCode):
        return None
    return code.gpu_instance


RESET: Final = "drain the node, then reset the GPU"
REBOOT: Final = "drain and reboot the node; replace the GPU if it happens again"
_RESTART: Final = "restart the application; look for its defect if it happens again"
_LINK: Final = (
    "see the kernel log for the link and its severity: a reset of the GPU is needed if the driver"
    " asks for one"
)
_LATER: Final = "reset the GPU once no pod has it"
_WATCH: Final = "nothing, unless it happens again"

_TABLE: Final[dict[int, XidMeaning]] = {}


def _add(
    state: HealthState, scope: XidScope, remedy: str, causes: Mapping[int | Iterable[int], str]
) -> None:
    for codes, cause in causes.items():
        meaning = XidMeaning(cause=cause, state=state, scope=scope, remedy=remedy)
        for code in [codes] if isinstance(codes, int) else codes:
            _TABLE[code] = meaning


_add(
    HealthState.FAILED,
    XidScope.GPU,
    RESET,
    {
        46: "the GPU stopped processing",
        48: "a double-bit ECC error: data in memory was lost",
        62: "the GPU's power-management controller halted",
        64: "a page could not be retired, or a row not be remapped",
        95: "an uncontained memory error: it struck more than one application",
        109: "a change to another application took too long, and the GPU hangs",
        110: "a security fault",
        119: "the GPU's system processor (GSP) did not answer",
        120: "an error in the GPU's system processor (GSP)",
        140: "an ECC error from which the driver could not recover",
        143: "the GPU could not be initialized",
        156: "a part of the GPU was retired",
        158: "a fatal timeout of the GPU",
        169: "the GPU's security controller halted",
    },
)
_add(
    HealthState.FAILED,
    XidScope.NVLINK,
    f"{RESET}; if the link fails again, check the GPU or switch at its other end",
    {
        74: "an NVLink error",
        136: "the training of an NVLink failed",
        155: "an NVLink was taken down by software",
    },
)
_add(
    HealthState.FAILED,
    XidScope.NODE,
    REBOOT,
    {79: "the GPU has fallen off the bus", 167: "a fatal timeout of PCI Express"},
)
_add(
    HealthState.DEGRADED,
    XidScope.MIG,
    f"restart the application that it ended; {_LATER}",
    {94: "a contained memory error: it struck one application"},
)
_add(
    HealthState.DEGRADED,
    XidScope.GPU,
    _LATER,
    {
        157: "a part of the GPU could not be retired",
        168: "the GPU has less memory, because of errors in its protected region",
    },
)
_add(
    HealthState.DEGRADED,
    XidScope.GPU,
    "check the power cables of the GPU",
    {54: "auxiliary power is not connected to the GPU"},
)
_add(
    HealthState.DEGRADED,
    XidScope.GPU,
    "restart the virtual machine",
    {151: "the keys of confidential computing could not be rotated"},
)
_add(
    HealthState.DEGRADED,
    XidScope.NODE,
    "restart the application; see the kernel log for the link to the processor",
    {159: "an error of the link between GPU and processor"},
)
_add(
    HealthState.DEGRADED,
    XidScope.NVLINK,
    _LINK,
    {
        144: "an NVLink error (SAW)",
        145: "an NVLink error (RLW)",
        146: "an NVLink error (TLW)",
        147: "an NVLink error (TREX)",
        148: "an NVLink error (NVLPW)",
        149: "an NVLink error (NETIR)",
        150: "an NVLink error (MSE)",
        166: "unencrypted NVLink traffic in confidential computing",
        170: "an NVLink error in confidential computing",
    },
)
_add(
    HealthState.OK,
    XidScope.APPLICATION,
    _RESTART,
    {
        (8, 43): "the GPU stopped an application",
        (11, 25, 32): "an invalid or corrupted stream of commands",
        13: "an exception in an application, such as an access out of bounds",
        31: "a page fault in an application",
        (39, 40, 41, *range(70, 73), *range(75, 78), 85, *range(126, 136)): (
            "an exception of a copy engine"
        ),
        44: "a fault while the GPU changed to another application",
        45: "an application was ended, mostly because of an earlier error",
        (60, 68, 83, 84, 88, 89, 96, 97, 98): "an exception of the video decoder",
        69: "an application used a class of commands wrongly",
        80: "corrupted data were sent to the GPU",
        (82, *range(99, 106)): "an exception of the JPEG decoder",
        (86, 139): "an exception of the optical-flow engine",
        137: "an application accessed another GPU's memory wrongly",
        141: "an error in the fast path of CUDA",
        142: "an exception of the video encoder",
    },
)
_add(
    HealthState.OK,
    XidScope.GPU,
    _WATCH,
    {
        14: "an error that was injected for a test",
        (37, 38): "an error of the driver's firmware",
        63: "a page was recorded to be retired, or a row to be remapped",
        (66, 67): "the driver accessed the GPU wrongly",
        78: "a virtual GPU could not start",
        92: "a high rate of single-bit ECC errors, which were corrected",
        93: "the limit of writes to the GPU's InfoROM was reached",
        (106, 107): "a message of the management bus, for a test",
        108: "an NVLink request could not be translated",
        121: "corrected errors of the link between GPU and processor",
        (152, 153): "an error of the deep-learning accelerator",
        160: "a memory channel was retired",
        161: "a memory channel could not be retired",
        162: "power smoothing works again",
        163: "power smoothing was switched off",
        164: "power smoothing is near the end of its lifetime",
        165: "power smoothing is at the end of its lifetime",
    },
)
_add(
    HealthState.OK,
    XidScope.GPU,
    "see the recovery action, which has a rule of its own",
    {154: "the recovery action of the GPU changed"},
)
_add(
    HealthState.OK,
    XidScope.GPU,
    "see XID 48, which comes with it",
    {171: "the place of an ECC error: DRAM", 172: "the place of an ECC error: SRAM"},
)

XIDS: Final[Mapping[int, XidMeaning]] = dict(sorted(_TABLE.items()))
"""By number. The catalogue has no use for the others on GPUs since Ampere."""

UNKNOWN_XID: Final = XidMeaning(
    cause="an error that this release does not know",
    state=HealthState.DEGRADED,
    scope=XidScope.GPU,
    remedy="see the kernel log, and NVIDIA's catalogue of XIDs",
)
LAST_KNOWN: Final = max(XIDS)


def meaning(code: int) -> XidMeaning:
    """Return what an XID means; those that the catalogue calls unused mean nothing."""
    found = XIDS.get(code)
    if found is not None:
        return found
    if 0 < code <= LAST_KNOWN:
        return UNUSED_XID
    return UNKNOWN_XID


UNUSED_XID: Final = XidMeaning(
    cause="an error that only GPUs before Ampere report",
    state=HealthState.OK,
    scope=XidScope.GPU,
    remedy=_WATCH,
)
