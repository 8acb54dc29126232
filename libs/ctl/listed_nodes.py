"""Nodes of a list: of thousands, only what Sluice writes on them is decoded."""

from typing import Any, Final

import msgspec

from libs.contracts.node import (
    INITIALLY_CORDONED_ANNOTATION,
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    MIG_STATE_LABEL,
    RECORD_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    UpgradeState,
)
from libs.fleet.node import VERSION_LABEL
from libs.kube import views
from libs.kube.resources import Resource


class _Labels(views.View, frozen=True, kw_only=True, omit_defaults=True):
    state: str = msgspec.field(name=STATE_LABEL, default="")
    skip: str = msgspec.field(name=SKIP_LABEL, default="")
    version: str = msgspec.field(name=VERSION_LABEL, default="")
    mig: str = msgspec.field(name=MIG_STATE_LABEL, default="")


class _Annotations(views.View, frozen=True, kw_only=True, omit_defaults=True):
    record: str = msgspec.field(name=RECORD_ANNOTATION, default="")
    lease: str = msgspec.field(name=LEASE_ANNOTATION, default="")
    claim: str = msgspec.field(name=LEASE_CLAIM_ANNOTATION, default="")
    initially_cordoned: str = msgspec.field(name=INITIALLY_CORDONED_ANNOTATION, default="")


class _Metadata(views.View, frozen=True, kw_only=True):
    name: str
    uid: str = ""
    labels: _Labels = _Labels()
    annotations: _Annotations = _Annotations()


class ListedNode(views.View, frozen=True, kw_only=True):
    """A Node without its other labels and annotations, and without managed fields."""

    metadata: _Metadata

    def known_metadata(self) -> views.Metadata:
        """Return what is known of it as metadata of a Node."""
        found = self.metadata
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
