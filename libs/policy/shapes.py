"""How a policy's fields are told once: struct, words, limits and effect in one place.

A field is an annotated struct field: its type and default are Python's, and an `About` beside the
type says the rest. `shape` turns a struct into plain data, from which the schema of its CRD, the
reading of what people wrote, and the page for people are made. Knows no kind and no field.
"""

import types
from collections.abc import Mapping
from enum import Enum, EnumType, StrEnum
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec

IntOrString = int | str
"""A number, or a text that holds a number or a percentage."""

FreeForm = dict[str, Any]
"""An object of Kubernetes that is handed on as it is."""


class PolicyStruct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
):
    """A part of a policy: what is at its default means the same as what is not there."""


class Rule(msgspec.Struct, frozen=True):
    """A rule that the API server holds an object to."""

    text: str
    """In CEL; its predicate stands in `libs.policy.crds`."""
    message: str


class About(msgspec.Struct, frozen=True):
    """What the type of a field does not say."""

    description: str
    """A sentence for people."""
    effect: str = ""
    """What follows from it here."""
    no_effect_because: str = ""
    """Why nothing follows from it here, nor from anything below it: completes "because"."""
    absent: bool = False
    """It switches on a part that does not exist here."""
    deprecated: str = ""
    """What to do instead."""
    alias: str = ""
    """An old spelling of the field beside it that has this name in JSON."""
    unset: str = ""
    """What holds where it is not set, if the default is not that."""
    stored: bool = False
    """The API server writes the default into objects that do not say it."""
    required: bool = False
    choices: tuple[str, ...] = ()
    """What a text may be, where that is no enum of ours."""
    pattern: str = ""
    minimum: int | None = None
    maximum: int | None = None
    bits: int = 64
    """Of an integer."""
    int_or_percent: bool = False
    """A text that must be a number or a percentage."""
    rules: tuple[Rule, ...] = ()
    atomic: bool = False
    """One owner for the whole map or list."""
    keys: tuple[str, ...] = ()
    """A list whose items are told apart by these."""


class JsonType(Enum):
    """What a value looks like in JSON."""

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
    """What a text may be; empty means any."""
    items: "Shape | None" = None
    """Of a list's items or a map's values."""
    fields: tuple["Field", ...] = ()
    """Of an object."""
    python_type: Any = None
    """The struct of an object, the enum of a text."""


class Field(msgspec.Struct, frozen=True):
    """One field of an object."""

    name: str
    """In JSON."""
    attribute: str
    shape: Shape
    about: About
    default: Any


_PLAIN: Final[Mapping[Any, JsonType]] = {
    bool: JsonType.BOOLEAN,
    int: JsonType.INTEGER,
    float: JsonType.NUMBER,
    str: JsonType.TEXT,
}
_UNTOLD: Final = About("")


def shape_of(
    struct: type[msgspec.Struct], descriptions: Mapping[type[msgspec.Struct], Mapping[str, About]]
) -> Shape:
    """The struct as data. What is `told` beside it, by attribute, is for one declared elsewhere."""
    return _object(struct, descriptions)


def _object(
    struct: type[msgspec.Struct], told: Mapping[type[msgspec.Struct], Mapping[str, About]]
) -> Shape:
    fields: list[Field] = []
    beside = told.get(struct, {})
    for field in msgspec.structs.fields(struct):
        plain, said = _said(field.type)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        fields.append(
            Field(
                name=field.encode_name,
                attribute=field.name,
                shape=_shape(plain, said, told),
                about=beside.get(field.name, said),
                default=default,
            )
        )
    return Shape(type=JsonType.OBJECT, fields=tuple(fields), python_type=struct)


def _said(annotation: Any) -> tuple[Any, About]:
    if get_origin(annotation) is Annotated:
        plain, *beside = get_args(annotation)
        return plain, next((word for word in beside if isinstance(word, About)), _UNTOLD)
    return annotation, _UNTOLD


def _shape(
    annotation: Any,
    said: About,
    told: Mapping[type[msgspec.Struct], Mapping[str, About]],
) -> Shape:
    if annotation == IntOrString:
        return Shape(type=JsonType.INT_OR_STRING)
    if annotation == FreeForm:
        return Shape(type=JsonType.FREE_FORM)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        rest = [word for word in arguments if word is not type(None)]
        return _shape(Union[tuple(rest)], said, told)  # noqa: UP007 - made, not written
    if origin is tuple:
        return Shape(type=JsonType.LIST, items=_shape(arguments[0], _UNTOLD, told))
    if origin is dict:
        return Shape(type=JsonType.MAP, items=_shape(arguments[1], _UNTOLD, told))
    if isinstance(annotation, EnumType):
        words = tuple(str(word.value) for word in cast("type[StrEnum]", annotation))
        return Shape(type=JsonType.TEXT, choices=words, python_type=annotation)
    if annotation in _PLAIN:
        return Shape(type=_PLAIN[annotation], choices=said.choices)
    return _object(annotation, told)
