"""Who wrote a field of an object, as far as the API server's records show it. Pure.

They name the program. Its user is known where the program wrote it down, as `sluice` does: a claim,
which the audit log proves.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from libs.contracts import rollout
from libs.contracts.node import COMMAND, user_of
from libs.contracts.words import one_line
from libs.kube.ownership import OwnedFields, owned_fields
from libs.kube.views import ManagedFields, Metadata, parse_time

_LONGEST: Final = 200
"""Characters of what a person wrote that are repeated."""


class Author(msgspec.Struct, frozen=True, kw_only=True):
    """The user who set a field, or else what is known of the user by the program."""

    name: str
    at: float | None = None
    """When the program last wrote the object, in Unix seconds: the field is at least as old."""
    reason: str = ""


def last_owner(
    entries: Iterable[ManagedFields], owns: Callable[[OwnedFields], bool]
) -> ManagedFields | None:
    """Return the entry of the program that last wrote a field; None: no program owns it."""
    owners = (each for each in entries if not each.subresource and _owns(each, owns))
    return max(owners, key=lambda each: each.time, default=None)


def brake_author(metadata: Metadata) -> Author | None:
    """Return the author of the brake of a Rollout; None: it is not recorded, or was removed."""
    return _author(metadata, "brake", rollout.BRAKE_SET_BY, rollout.BRAKE_REASON)


def release_author(metadata: Metadata) -> Author | None:
    """Return the author of the release of a Rollout; None: it is not recorded, or was removed."""
    return _author(metadata, "release", rollout.RELEASE_SET_BY, rollout.RELEASE_REASON)


def _author(metadata: Metadata, field: str, user_key: str, reason_key: str) -> Author | None:
    """The annotations with user and reason count only while `sluice` wrote the field last."""
    owner = last_owner(metadata.managed_fields, lambda owned: f"f:{field}" in owned.spec)
    if owner is None:
        return None
    at = parse_time(owner.time) if owner.time else None
    user = _annotation(metadata, user_key) if owner.manager == COMMAND else ""
    if not user:
        return Author(name=user_of(owner.manager), at=at)
    return Author(name=user, at=at, reason=_annotation(metadata, reason_key))


def _annotation(metadata: Metadata, key: str) -> str:
    return one_line(metadata.annotations.get(key, ""), _LONGEST).strip()


def _owns(entry: ManagedFields, owns: Callable[[OwnedFields], bool]) -> bool:
    try:
        return owns(owned_fields(entry))
    except ValueError:
        return False
