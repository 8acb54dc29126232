"""What tells nodes apart for a driver: their system in a word, and the variant that it means. Pure.

Which drivers are there for a variant is not known here.
"""

from collections.abc import Mapping
from typing import Final

from libs.policy.variants import (
    ARCHITECTURE_LABEL,
    KERNEL_LABEL,
    OS_LABEL,
    OS_VERSION_LABEL,
    Variant,
    variant_of,
)
from libs.policy.wanted import Method, WantedDriver

_SYSTEM: Final = (OS_LABEL, OS_VERSION_LABEL, KERNEL_LABEL, ARCHITECTURE_LABEL)
_ALL: Final = "any"
"""The variant of every node where the driver is there already."""


def shown_for(driver: WantedDriver, labels: Mapping[str, str]) -> str:
    """The word for a node that is to have this driver; empty where its system is not known."""
    if driver.method is Method.PRE_INSTALLED:
        return _ALL
    return "" if known_variant(driver, labels) is None else shown(labels)


def known_variant(driver: WantedDriver, labels: Mapping[str, str]) -> Variant | None:
    """Of this driver, for nodes with these labels."""
    found = variant_of(driver, labels)
    return None if isinstance(found, str) else found


def shown(labels: Mapping[str, str]) -> str:
    """All that any driver may tell nodes apart by: so it stays when another driver is wanted."""
    if not labels.get(OS_LABEL):
        return ""
    return "/".join(labels.get(key, "") for key in _SYSTEM)


def labels_of(word: str) -> Mapping[str, str]:
    """The way back; the major version is a part of the version."""
    if word == _ALL:
        return {}
    labels: dict[str, str] = dict(zip(_SYSTEM, word.split("/"), strict=False))
    labels[f"{OS_VERSION_LABEL}.major"] = labels.get(OS_VERSION_LABEL, "").partition(".")[0]
    return {key: value for key, value in labels.items() if value}
