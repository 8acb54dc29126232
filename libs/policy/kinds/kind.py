"""Definitions of kinds: names, printer columns, spec and status structs."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from libs.policy.shapes import About, Rule, Shape, shape_of

_SHAPES: Final[dict[type[msgspec.Struct], Shape]] = {}
"""Cache of shapes; a struct belongs to one kind, so descriptions need not be part of the key."""

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
    """A kind of another project; Sluice only checks whether objects of it exist."""

    name: str
    group: str
    version: str
    plural: str


class Kind(msgspec.Struct, frozen=True, kw_only=True):
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
    """The struct that objects of the kind are parsed into."""
    columns: tuple[PrinterColumn, ...] = (AGE,)
    rules: tuple[Rule, ...] = ()
    """Rules for the whole spec."""
    spec_required: bool = False
    descriptions: FieldDescriptions = {}
    """Field descriptions of structs that are declared elsewhere."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def spec_shape(self) -> Shape:
        return _shape(self.spec, self.descriptions)

    @property
    def status_shape(self) -> Shape:
        return _shape(self.status, self.descriptions)


def _shape(struct: type[msgspec.Struct], descriptions: FieldDescriptions) -> Shape:
    known = _SHAPES.get(struct)
    if known is None:
        known = _SHAPES[struct] = shape_of(struct, descriptions)
    return known
