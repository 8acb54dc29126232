"""Nodes of a list: of thousands, only what a `FleetNode` is read from is decoded."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from libs.contracts.node import STATE_LABEL, UpgradeState
from libs.fleet.node import ANNOTATIONS, LABELS
from libs.kube import views
from libs.kube.resources import Resource


def _texts_of(keys: Iterable[str]) -> type[msgspec.Struct]:
    """Return a struct with a text for each of these keys: others are passed over undecoded."""
    fields = {f"text_{number}": key for number, key in enumerate(keys)}
    return msgspec.defstruct(
        "Texts",
        [(name, str, "") for name in fields],
        rename=fields,
        frozen=True,
        omit_defaults=True,
    )


_Labels: Final = _texts_of(LABELS)
_Annotations: Final = _texts_of(ANNOTATIONS)
_Metadata: Final = msgspec.defstruct(
    "Metadata",
    [
        ("name", str),
        ("uid", str, ""),
        ("labels", _Labels, _Labels()),
        ("annotations", _Annotations, _Annotations()),
    ],
    frozen=True,
)
ListedNode: Final[type[Any]] = msgspec.defstruct(
    "ListedNode", [("metadata", _Metadata)], frozen=True
)
"""A Node without its other labels and annotations, and without managed fields."""


def known_metadata(node: Any) -> views.Metadata:
    """Return what is known of a `ListedNode` as metadata of a Node."""
    found = node.metadata
    return views.Metadata(
        name=found.name,
        uid=found.uid,
        labels=msgspec.to_builtins(found.labels),
        annotations=msgspec.to_builtins(found.annotations),
    )


NOT_DONE: Final = f"{STATE_LABEL},{STATE_LABEL}!={UpgradeState.UPGRADE_DONE.value}"
"""Selects nodes that have a state and are not done, by their labels."""
LISTED_NODES: Final[Resource[Any]] = Resource(
    plural="nodes", kind="Node", namespaced=False, metadata_only=True, view=ListedNode
)
