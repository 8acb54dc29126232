"""The fields that a manager owns, from the managedFields of an object."""

from typing import Any, Final

import msgspec

from libs.kube.views import ManagedFields


class OwnedMetadata(msgspec.Struct, frozen=True):
    labels: dict[str, Any] = msgspec.field(name="f:labels", default={})
    annotations: dict[str, Any] = msgspec.field(name="f:annotations", default={})


class OwnedFields(msgspec.Struct, frozen=True):
    """The part of `fields_v1` in use; its keys have the prefix `f:`."""

    metadata: OwnedMetadata = msgspec.field(name="f:metadata", default=OwnedMetadata())
    spec: dict[str, Any] = msgspec.field(name="f:spec", default={})


_DECODER: Final = msgspec.json.Decoder(OwnedFields)


def owned_fields(entry: ManagedFields) -> OwnedFields:
    """Return the fields; raise `ValueError` if they are not as an API server writes them."""
    return _DECODER.decode(entry.fields_v1)
