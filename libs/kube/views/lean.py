"""What views keep of an object: fleets are large, so that the rest is dropped as it is decoded.

A cluster may have 10,000 Nodes with 10 KiB each, of which a service reads a tenth. To decode a
field costs time and to keep it memory; a role whose view keeps less says beside it what for.
"""

from collections.abc import Set
from sys import intern

from msgspec.structs import force_setattr, replace

from libs.kube.views import Metadata, Object, settle


def drop_managed_fields(view: Object) -> None:
    """Keep all metadata but who owns which field, which is most of it."""
    settle(view, metadata=replace(view.metadata, managed_fields=()))


def keep_metadata(
    view: Object, *, labels: bool = True, annotations: Set[str] = frozenset()
) -> None:
    """Keep the named annotations, and labels if anybody reads them, whose keys all Nodes share."""
    full = view.metadata
    lean = replace(
        full,
        labels={intern(key): value for key, value in full.labels.items()} if labels else {},
        annotations={key: full.annotations[key] for key in annotations & full.annotations.keys()},
        managed_fields=(),
    )
    force_setattr(view, "metadata", lean)


def keep_identity(view: Object) -> None:
    """Keep what tells an object from others: of pods and claims there may be 50,000."""
    full = view.metadata
    lean = Metadata(
        name=full.name,
        namespace=intern(full.namespace),
        uid=full.uid,
        resource_version=full.resource_version,
    )
    settle(view, metadata=lean)


class Unmanaged(Object, frozen=True, kw_only=True):
    """An object without its managed fields."""

    def __post_init__(self) -> None:
        drop_managed_fields(self)
