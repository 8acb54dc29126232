"""The format of CDI specs, as far as Sluice writes it, and the rules for its names.

https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import hashlib
import re
from typing import Final

import msgspec

_KIND: Final = re.compile(
    r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
)
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_HOST_PATH_VERSION: Final = "0.5.0"
_DOTTED_CLASS_VERSION: Final = "0.6.0"
_FIRST_VERSION: Final = "0.3.0"
_DIGEST_LENGTH: Final = 32
FILE_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
SOCKET_OPTIONS: Final = ("nosuid", "nodev", "rbind", "rprivate", "noexec")


class _Part(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """A part of a spec."""


class DeviceNode(_Part, frozen=True, kw_only=True):
    """A device file that the container gets; the runtime reads its numbers from the machine."""

    path: str
    host_path: str = ""
    """Where the file is on the machine; empty: at the same path."""


class Mount(_Part, frozen=True, kw_only=True):
    """A file of the machine that the container sees."""

    host_path: str
    container_path: str
    options: tuple[str, ...]


class Edits(_Part, frozen=True, kw_only=True):
    """What is added to a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()


class Device(_Part, frozen=True, kw_only=True):
    """What a container gets that asks for this device, besides what all get."""

    name: str
    container_edits: Edits


class Spec(_Part, frozen=True, kw_only=True):
    """The devices of one kind."""

    cdi_version: str
    kind: str
    container_edits: Edits = msgspec.field(default_factory=Edits)
    devices: tuple[Device, ...]


def files(spec: Spec) -> frozenset[str]:
    """Return the files of the machine without which a container with a device does not start."""
    edits = (spec.container_edits, *(each.container_edits for each in spec.devices))
    nodes = {node.host_path or node.path for each in edits for node in each.device_nodes}
    return frozenset(nodes | {mount.host_path for each in edits for mount in each.mounts})


def common_digest(spec: Spec) -> str:
    """Return the digest of the files and variables that every container with a device gets.

    Device files do not count: some appear when they are first used.
    """
    edits = spec.container_edits
    mounts = sorted((each.container_path, each.host_path, each.options) for each in edits.mounts)
    text = msgspec.json.encode(["sluice.dev/runtime/1", sorted(edits.env), mounts])
    return hashlib.sha256(text).hexdigest()[:_DIGEST_LENGTH]


class MalformedSpec(ValueError):
    """A text is no CDI spec of the form that Sluice writes."""


def make_spec(kind: str, *, common: Edits, devices: tuple[Device, ...]) -> Spec:
    """Return a spec with the lowest version that has what it uses."""
    edits = (common, *(each.container_edits for each in devices))
    has_host_path = any(node.host_path for each in edits for node in each.device_nodes)
    version = _FIRST_VERSION
    if "." in kind.partition("/")[2]:
        version = _DOTTED_CLASS_VERSION
    elif has_host_path or any(each.name[:1].isdecimal() for each in devices):
        version = _HOST_PATH_VERSION
    spec = Spec(cdi_version=version, kind=kind, container_edits=common, devices=devices)
    _require_names(spec)
    return spec


def is_device_name(name: str) -> bool:
    return _DEVICE.fullmatch(name) is not None


def encode(spec: Spec) -> bytes:
    return msgspec.json.format(msgspec.json.encode(spec), indent=1) + b"\n"


def decode(data: bytes) -> Spec:
    """Return the spec in a file; raise `MalformedSpec`."""
    try:
        spec = msgspec.json.decode(data, type=Spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedSpec(f"the CDI spec is not readable: {error}") from None
    _require_names(spec)
    return spec


def _require_names(spec: Spec) -> None:
    """Raise `MalformedSpec` where the runtime would refuse the whole file."""
    names = [each.name for each in spec.devices]
    if not _KIND.fullmatch(spec.kind):
        raise MalformedSpec(f"{spec.kind!r} is no kind of CDI device: write vendor/class")
    if not names:
        raise MalformedSpec(f"the CDI spec of {spec.kind} has no device")
    if wrong := next((name for name in names if not is_device_name(name)), None):
        raise MalformedSpec(f"{wrong!r} is no name of a CDI device")
    if len(set(names)) < len(names):
        raise MalformedSpec(f"the CDI spec of {spec.kind} has two devices of one name")
