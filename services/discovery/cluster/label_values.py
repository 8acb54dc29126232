"""Values of labels: what Kubernetes accepts, and how names become such values. Pure."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.contracts.node import is_vendor_label

FEATURES: Final = "feature.node.kubernetes.io/"
"""Prefix of node feature discovery's labels."""
NVIDIA: Final = "nvidia.com/"

MAX_LABELS: Final = 512
"""Labels of one node that describe it."""

Labels = dict[str, str | None]
"""Labels to set; None: to remove."""

REFUSED: Final = "?"
"""Stands for a value that cannot be true, in labels that are not checked yet."""

_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_KEY: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_NOT_IN_PRODUCT: Final = re.compile(r"[^-A-Za-z0-9_. ]", re.ASCII)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Labels that Kubernetes accepts, and the keys of the others, whose labels stay as they are."""

    labels: Labels
    refused: tuple[str, ...] = ()


def product(name: str) -> str:
    """Return a product name as a label's value."""
    return "-".join(_NOT_IN_PRODUCT.sub("", name).split())


def number(value: int, *, high: int) -> str:
    """Return a number as a label's value, which is refused if it is too high to be true."""
    return str(value) if 0 <= value <= high else REFUSED


def is_feature(key: str) -> bool:
    """Return whether a key is of node feature discovery, or of a vendor by a feature file."""
    return key.startswith(FEATURES) or is_vendor_label(key)


def describes(key: str) -> bool:
    """Return whether a label may be one that describes a node."""
    return key.startswith(NVIDIA) or is_feature(key)


def check(labels: Mapping[str, str | None]) -> Checked:
    """Separate what Kubernetes refuses, and what exceeds the limit of a node."""
    accepted: Labels = {}
    refused: list[str] = []
    count = 0
    for key, value in labels.items():
        if not _KEY.fullmatch(key) or not describes(key):
            refused.append("a malformed key")
        elif value is None:
            accepted[key] = None
        elif count < MAX_LABELS and _VALUE.fullmatch(value):
            accepted[key] = value
            count += 1
        else:
            refused.append(key)
    return Checked(labels=accepted, refused=tuple(refused))
