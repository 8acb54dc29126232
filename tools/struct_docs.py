"""How a struct is told in Markdown: its fields, their types, what its source says of them.

Which page it stands on, and beside what, is not known here.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from libs.contracts import message
from libs.contracts.catalogue import FORMS, PLANES, MessageForm

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/contracts/golden" / f"v{message.MAJOR}"


# Notes: the docstrings in the sources.


@cache
def _notes(cls: type[Any]) -> dict[str, str]:
    """What the source says below each field, or word, of a class."""
    source = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (body,) = [
        p.body for p in source.body if isinstance(p, ast.ClassDef) and p.name == cls.__name__
    ]
    notes: dict[str, str] = {}
    for part, after in itertools.pairwise(body):
        target = part.target if isinstance(part, ast.AnnAssign) else None
        if isinstance(part, ast.Assign):
            target = part.targets[0]
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr):
            notes[target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return notes


def _says(cls: type[Any]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split())


# Types: how a field's type is told, and where its parts are described.


def _within(info: types.Type) -> Iterator[type[Any]]:
    """Every struct and every list of words in a type."""
    if isinstance(info, types.StructType):
        yield info.cls
        for field in info.fields:
            yield from _within(field.type)
    elif isinstance(info, types.EnumType):
        yield info.cls
    elif isinstance(info, types.UnionType):
        for one in info.types:
            yield from _within(one)
    elif isinstance(info, types.VarTupleType | types.ListType):
        yield from _within(info.item_type)
    elif isinstance(info, types.DictType):
        yield from _within(info.value_type)


@cache
def anchors() -> dict[type[Any], str]:
    """Where each struct and each list of words is described."""
    anchors: dict[type[Any], str] = {}
    for form in FORMS:
        anchors.setdefault(form.content, form.name.replace(".", "-"))
    for plane in PLANES:
        anchors.setdefault(plane.forms[0].message, f"{plane.name}-envelope")
    for form in FORMS:
        for cls in (
            *_within(types.type_info(form.message)),
            *_within(types.type_info(form.content)),
        ):
            anchors.setdefault(cls, f"{cls.__module__.rpartition('.')[2]}-{cls.__name__}".lower())
    return anchors


_PLAIN: dict[type[types.Type], str] = {
    types.StrType: "string",
    types.IntType: "integer",
    types.FloatType: "number",
    types.BoolType: "boolean",
    types.NoneType: "null",
    types.AnyType: "anything",
    types.RawType: "object, by its kind",
}


def _type(info: types.Type) -> str:
    if isinstance(info, types.StructType | types.EnumType):
        return f"[{info.cls.__name__}](#{anchors()[info.cls]})"
    if isinstance(info, types.UnionType):
        return " or ".join(_type(one) for one in info.types)
    if isinstance(info, types.VarTupleType | types.ListType):
        return f"list of {_type(info.item_type)}"
    if isinstance(info, types.TupleType):
        return f"[{', '.join(_type(one) for one in info.item_types)}]"
    if isinstance(info, types.DictType):
        return f"map to {_type(info.value_type)}"
    return _PLAIN[type(info)]


def _default(field: types.Field) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    return f"`{msgspec.json.encode(default).decode()}`"


# Markdown.


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A table, and the empty line after it."""
    cells = [list(head), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return ["| " + " | ".join(one.replace("|", "\\|") for one in row) + " |" for row in cells] + [
        ""
    ]


def fields(cls: type[Any]) -> list[str]:
    """The fields of a struct, in the order in which they are written."""
    info = types.type_info(cls)
    assert isinstance(info, types.StructType)
    notes = _notes(cls)
    rows = [
        [f"`{field.encode_name}`", _type(field.type), _default(field), notes.get(field.name, "")]
        for field in info.fields
    ]
    if info.tag_field:
        rows.insert(0, [f"`{info.tag_field}`", "integer", f"`{info.tag}`", "The major version."])
    if info.array_like:
        numbered = [[str(place), *row] for place, row in enumerate(rows)]
        return table(("Place", "Field", "Type", "Default", "Meaning"), numbered)
    return (
        table(("Field", "Type", "Default", "Meaning"), rows) if rows else ["It has no fields.", ""]
    )


def example(form: MessageForm) -> list[str]:
    """The golden file of a form, behind a click."""
    path = GOLDEN / f"{form.name}.{'msgpack' if form.is_binary else 'json'}"
    data = path.read_bytes()
    if form.is_binary:
        data = msgspec.json.encode(msgspec.msgpack.decode(data))
    shown = msgspec.json.format(data, indent=2).decode()
    return ["<details><summary>Example</summary>", "", "```json", shown, "```", "</details>", ""]


def heading(level: int, title: str, cls: type[Any]) -> list[str]:
    """Where links to a struct lead, and what its source says of it."""
    return [f'<a id="{anchors()[cls]}"></a>', f"{'#' * level} {title}", "", _says(cls), ""]
