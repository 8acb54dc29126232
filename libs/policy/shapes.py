"""Policy fields described once: type, default, limits, description and effect.

A field is an annotated struct field: Python gives its type and default, and an `About` in the
annotation gives the rest. `shape_of` turns a struct into plain data, from which the CRD schema, the
decoder and the documentation page are derived.
"""

import re
import types
from collections.abc import Iterator, Mapping
from enum import Enum, EnumType, StrEnum
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec

IntOrString = int | str
"""A number, or a string that holds a number or a percentage."""

FreeForm = dict[str, Any]
"""A Kubernetes object that is passed through unchanged."""


class PolicyStruct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A part of a policy. A field at its default means the same as an absent field."""


class Rule(msgspec.Struct, frozen=True):
    """A validation rule that the API server enforces."""

    text: str
    """The rule in CEL. Its Python predicate is in `libs.policy.crds.CEL_RULES`."""
    message: str


class About(msgspec.Struct, frozen=True):
    """The description of a field, and the limits that its type does not express."""

    description: str = ""
    """Empty: the docstring of the field in its contract (`tools/crds.py` reads it)."""
    effect: str = ""
    """What the field does in Sluice."""
    no_effect_because: str = ""
    """Why the field and its subfields have no effect in Sluice: completes "because"."""
    refuses: str = ""
    """Values that its type permits and that are errors."""
    unsupported: bool = False
    """Whether the field switches on a feature that Sluice lacks, where it has no effect."""
    deprecated: str = ""
    """What to use instead."""
    alias: str = ""
    """Marks an old spelling: the JSON name of the sibling field that replaces this one."""
    unset: str = ""
    """The value that applies when the field is unset, if it is not the default."""
    stored: bool = False
    """Whether the API server stores the default in objects that leave the field out."""
    required: bool = False
    choices: tuple[str, ...] = ()
    """Allowed values of a string field that is not an enum."""
    pattern: str = ""
    minimum: int | None = None
    maximum: int | None = None
    bits: int = 64
    """Size of an integer."""
    int_or_percent: bool = False
    """Whether a string must be a number or a percentage."""
    rules: tuple[Rule, ...] = ()
    atomic: bool = False
    """Whether the whole map or list has one field manager."""
    keys: tuple[str, ...] = ()
    """The fields that identify the items of a list."""


class JsonType(Enum):
    """The type of a value in JSON."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "string"
    INT_OR_STRING = "integer or string"
    LIST = "list"
    MAP = "map"
    OBJECT = "object"
    FREE_FORM = "open object"


class Shape(msgspec.Struct, frozen=True):
    """The type of a field as data."""

    type: JsonType
    choices: tuple[str, ...] = ()
    """Allowed values of a string; empty means any."""
    items: "Shape | None" = None
    """The shape of a list's items or of a map's values."""
    fields: tuple["Field", ...] = ()
    """The fields of an object."""
    python_type: Any = None
    """The struct of an object, or the enum of a string."""


class Field(msgspec.Struct, frozen=True):
    """One field of an object."""

    name: str
    """The name in JSON."""
    attribute: str
    shape: Shape
    about: About
    default: Any


def reason_without_effect(about: About, inherited: str) -> str:
    """Return why a field has no effect here, given the reason of its section; empty if it has."""
    return about.no_effect_because or inherited


def leaf_fields(shape: Shape, path: str, reason: str = "") -> Iterator[tuple[str, Field, str]]:
    """Yield every field below a path, and why it has no effect here."""
    for field in shape.fields:
        field_path = f"{path}.{field.name}".lstrip(".")
        field_reason = reason_without_effect(field.about, reason)
        if field.shape.type is JsonType.OBJECT and not field.about.alias:
            yield from leaf_fields(field.shape, field_path, field_reason)
        else:
            yield field_path, field, field_reason


_PLAIN: Final[Mapping[Any, JsonType]] = {
    bool: JsonType.BOOLEAN,
    int: JsonType.INTEGER,
    float: JsonType.NUMBER,
    str: JsonType.TEXT,
}
_NO_DETAILS: Final = About()


FieldDetails = Mapping[type[msgspec.Struct], Mapping[str, About]]
"""The fields' `About` for structs that carry none, by struct and attribute."""


def shape_of(struct: type[msgspec.Struct], details: FieldDetails) -> Shape:
    """Return the shape of a struct."""
    fields: list[Field] = []
    described = details.get(struct, {})
    for field in msgspec.structs.fields(struct):
        plain, about = _split_annotation(field.type)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        fields.append(
            Field(
                name=field.encode_name,
                attribute=field.name,
                shape=_shape(plain, about, details),
                about=described.get(field.name, about),
                default=default,
            )
        )
    return Shape(type=JsonType.OBJECT, fields=tuple(fields), python_type=struct)


def _split_annotation(annotation: Any) -> tuple[Any, About]:
    if get_origin(annotation) is Annotated:
        plain, *metadata = get_args(annotation)
        return plain, next((part for part in metadata if isinstance(part, About)), _NO_DETAILS)
    return annotation, _NO_DETAILS


def _shape(annotation: Any, about: About, details: FieldDetails) -> Shape:
    annotation, _ = _split_annotation(annotation)
    if annotation == IntOrString:
        return Shape(type=JsonType.INT_OR_STRING)
    if annotation == FreeForm:
        return Shape(type=JsonType.FREE_FORM)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        return _shape(Union[tuple(rest)], about, details)  # noqa: UP007 - built at run time
    if origin is tuple:
        return Shape(type=JsonType.LIST, items=_shape(arguments[0], _NO_DETAILS, details))
    if origin is dict:
        return Shape(type=JsonType.MAP, items=_shape(arguments[1], _NO_DETAILS, details))
    if isinstance(annotation, EnumType):
        choices = tuple(str(member.value) for member in cast("type[StrEnum]", annotation))
        return Shape(type=JsonType.TEXT, choices=choices, python_type=annotation)
    if annotation in _PLAIN:
        return Shape(type=_PLAIN[annotation], choices=about.choices)
    return shape_of(annotation, details)


_TEXT: Final = re.compile(r"([0-9]{1,9})(%?)", re.ASCII)


def is_int_or_percent(value: IntOrString) -> bool:
    """Report whether a value is a number from 0 up or a percentage from 0 to 100."""
    if isinstance(value, int):
        return value >= 0
    found = _TEXT.fullmatch(value)
    return found is not None and (not found[2] or int(found[1]) <= 100)


def scaled_value(amount: IntOrString, total: int) -> int:
    """Return the amount out of `total`, a percentage rounded up.

    The amount must satisfy `is_int_or_percent`.
    """
    if isinstance(amount, int):
        return amount
    found = _TEXT.fullmatch(amount)
    if found is None:
        raise ValueError(
            f"{amount!r} is neither a number nor a percentage: test it with is_int_or_percent"
        )
    number = int(found[1])
    return -(-number * total // 100) if found[2] else number


def to_json(value: Any, shape: Shape | None) -> Any:
    """Return a value of this shape as JSON data."""
    if shape is None or shape.type is JsonType.FREE_FORM:
        return value
    if shape.type is JsonType.LIST:
        return [to_json(item, shape.items) for item in value]
    if shape.type is JsonType.MAP:
        return {key: to_json(item, shape.items) for key, item in value.items()}
    if shape.type is not JsonType.OBJECT:
        return value.value if shape.python_type else value
    fields: dict[str, Any] = {}
    for field in shape.fields:
        field_value = getattr(value, field.attribute)
        if field_value is not None and (field_value != field.default or field.about.required):
            fields[field.name] = to_json(field_value, field.shape)
    return fields
