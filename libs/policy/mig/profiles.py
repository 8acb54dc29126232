"""The names of MIG profiles: `1g.10gb`, `1g.10gb+me`, `1c.3g.40gb`."""

import re
from functools import lru_cache
from typing import Final, NamedTuple

_NAME: Final = re.compile(
    r"(?:(?P<compute>[1-9])c\.)?(?P<slices>[1-9])g\.(?P<memory>[1-9][0-9]{0,3})gb"
    r"(?P<attribute>[+-][a-z]{2,4}(?:\.[a-z]{2,4})?)?"
)


_PART: Final = re.compile(r"\d+c\.")


class Profile(NamedTuple):
    """A MIG device: a compute instance, and the GPU instance that it is part of."""

    gpu_instance: str
    """The profile of the GPU instance: the name without `1c.`."""
    slices: int
    """The compute slices of the GPU instance."""
    compute: int
    """The compute slices of the compute instance."""


@lru_cache(maxsize=1024)
def parse_profile(name: str) -> Profile | None:
    """Return the profile with this name, or None if it is no profile's name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    slices = int(found["slices"])
    compute = int(found["compute"] or slices)
    # A compute instance of all slices has no number of its own in its name.
    if compute > slices or (found["compute"] and compute == slices):
        return None
    return Profile(name.partition("c.")[2] if found["compute"] else name, slices, compute)


def is_offered(name: str) -> bool:
    """Return whether device plugins offer such a MIG device by its profile.

    They leave out those with fewer compute slices than their GPU instance.
    """
    return bool(name) and _PART.match(name) is None


@lru_cache(maxsize=1024)
def largest_first(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in the order in which such instances are created."""

    def key(name: str) -> tuple[int, int, str]:
        profile = parse_profile(name)
        return (0, 0, name) if profile is None else (-profile.slices, -profile.compute, name)

    return tuple(sorted(names, key=key))
