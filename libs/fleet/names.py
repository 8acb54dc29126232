"""Names for people: nodes in the order of their numbers, versions in place of digests. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from libs.contracts.rollout import SHORT_TARGET

DIGEST: Final = re.compile(r"(?<![\w-])[0-9a-f]{32}(?![\w-])")
"""Match the digest of a target, but not one inside the name of an object, which people paste."""
_DIGITS: Final = re.compile(r"(\d+)")


def natural_order(name: str) -> list[int | str]:
    """Return a sort key by which node-2 is before node-10."""
    parts: list[int | str] = [*_DIGITS.split(name)]
    parts[1::2] = map(int, parts[1::2])
    return parts


def name_versions(text: str, versions: Mapping[str, str]) -> str:
    """Replace the digests of targets by versions, and shorten unknown ones."""
    return DIGEST.sub(lambda found: versions.get(found[0], found[0][:SHORT_TARGET]), text)


def version_name(target: str, versions: Mapping[str, str]) -> str:
    """Return the version that a target stands for, or the first digits of an unknown one."""
    return versions.get(target, target[:SHORT_TARGET])
