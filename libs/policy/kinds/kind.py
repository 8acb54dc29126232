"""What a kind is besides its fields: names, and what `kubectl get` shows of it."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.policy.shapes import About, Rule, Shape, shape_of

_SHAPES: Final[dict[type[msgspec.Struct], Shape]] = {}
"""What was worked out once: a struct belongs to one kind."""

FieldDescriptions = Mapping[type[msgspec.Struct], Mapping[str, About]]


class PrinterColumn(msgspec.Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Shown only with `-o wide`."""


AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


class ForeignKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of somebody else, of which we only ask whether there is any."""

    name: str
    group: str
    version: str
    plural: str


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of object that people write."""

    name: str
    group: str
    version: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    description: str
    spec: type[msgspec.Struct]
    status: type[msgspec.Struct]
    object_type: Any
    """What the object is once it is read; None: only its spec is."""
    columns: tuple[PrinterColumn, ...] = (AGE,)
    rules: tuple[Rule, ...] = ()
    """Of spec as a whole."""
    spec_required: bool = False
    descriptions: FieldDescriptions = {}
    """Words for structs that are declared elsewhere."""

    @property
    def api_version(self) -> str:
        """Group and version, as an object says them."""
        return f"{self.group}/{self.version}"

    @property
    def spec_shape(self) -> Shape:
        """What people write, as data."""
        return _shape(self.spec, self.descriptions)

    @property
    def status_shape(self) -> Shape:
        """What we write, as data."""
        return _shape(self.status, self.descriptions)


def _shape(struct: type[msgspec.Struct], told: FieldDescriptions) -> Shape:
    known = _SHAPES.get(struct)
    if known is None:
        known = _SHAPES[struct] = shape_of(struct, told)
    return known
