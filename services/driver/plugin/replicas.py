"""A device that is offered several times: `<uuid>::<number>`. Pure."""

from collections.abc import Iterable
from typing import Final

from libs.policy.plugin_config.config import TimeSlicing

_MARK: Final = "::"
SHARED: Final = ".shared"


def offered_ids(uuid: str, replicas: int) -> tuple[str, ...]:
    """Return the names under which a device is offered; itself where it is not shared."""
    if replicas < 2:
        return (uuid,)
    return tuple(f"{uuid}{_MARK}{number}" for number in range(replicas))


def uuid_of(offered: str) -> str:
    return offered.partition(_MARK)[0]


def is_replica(offered: str) -> bool:
    return _MARK in offered


def uuids_of(offered: Iterable[str]) -> tuple[str, ...]:
    """Return the devices of these names, each once, in order."""
    return tuple(dict.fromkeys(map(uuid_of, offered)))


def shared_name(resource: str, slicing: TimeSlicing) -> str:
    """Return the name under which a resource is offered."""
    renamed = slicing.rename and resource in slicing.replicas
    return f"{resource}{SHARED}" if renamed else resource
