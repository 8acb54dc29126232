"""Values of labels: what Kubernetes accepts, and how names become such values. Pure."""

import re
from collections.abc import Mapping
from typing import Final

FEATURES: Final = "feature.node.kubernetes.io/"
"""Prefix of node feature discovery's labels."""

Labels = dict[str, str | None]
"""Labels to set; None: to remove."""

_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_NOT_IN_PRODUCT: Final = re.compile(r"[^-A-Za-z0-9_. ]", re.ASCII)


def product(name: str) -> str:
    """Return a product name as a label's value."""
    return "-".join(_NOT_IN_PRODUCT.sub("", name).split())


def accepted(labels: Mapping[str, str | None]) -> Labels:
    """Leave out the values that Kubernetes refuses: their labels stay as they are."""
    return {key: value for key, value in labels.items() if value is None or _VALUE.fullmatch(value)}
