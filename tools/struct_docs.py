"""Describe structs in Markdown: fields, types, defaults and docstrings."""

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


@cache
def field_docstrings(cls: type[Any]) -> dict[str, str]:
    """Return the strings below the fields of a class by field."""
    source = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    (body,) = [
        node.body
        for node in source.body
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    docstrings: dict[str, str] = {}
    for statement, after in itertools.pairwise(body):
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr):
            docstrings[target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return docstrings


def _class_docstring(cls: type[Any]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split())


def _nested_types(info: types.Type) -> Iterator[type[Any]]:
    """Return every struct and enum within a type."""
    if isinstance(info, types.StructType):
        yield info.cls
        for field in info.fields:
            yield from _nested_types(field.type)
    elif isinstance(info, types.EnumType):
        yield info.cls
    elif isinstance(info, types.UnionType):
        for member in info.types:
            yield from _nested_types(member)
    elif isinstance(info, types.VarTupleType | types.ListType):
        yield from _nested_types(info.item_type)
    elif isinstance(info, types.DictType):
        yield from _nested_types(info.value_type)


@cache
def anchors() -> dict[type[Any], str]:
    """Return the anchor of the description of each struct and enum."""
    anchors: dict[type[Any], str] = {}
    for form in FORMS:
        anchors.setdefault(form.content, form.name.replace(".", "-"))
    for plane in PLANES:
        anchors.setdefault(plane.forms[0].message, f"{plane.name}-envelope")
    for form in FORMS:
        for cls in (
            *_nested_types(types.type_info(form.message)),
            *_nested_types(types.type_info(form.content)),
        ):
            anchors.setdefault(cls, f"{cls.__module__.rpartition('.')[2]}-{cls.__name__}".lower())
    return anchors


_TYPE_NAMES: dict[type[types.Type], str] = {
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
        return " or ".join(_type(member) for member in info.types)
    if isinstance(info, types.VarTupleType | types.ListType):
        return f"list of {_type(info.item_type)}"
    if isinstance(info, types.TupleType):
        return f"[{', '.join(_type(member) for member in info.item_types)}]"
    if isinstance(info, types.DictType):
        return f"map to {_type(info.value_type)}"
    return _TYPE_NAMES[type(info)]


def _default(field: types.Field) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    return f"`{msgspec.json.encode(default).decode()}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table, and an empty line."""
    cells = [list(head), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells] + [
        ""
    ]


def fields(cls: type[Any]) -> list[str]:
    """Return a table of the fields of a struct, in the order of the wire format."""
    info = types.type_info(cls)
    assert isinstance(info, types.StructType)
    docstrings = field_docstrings(cls)
    rows = [
        [
            f"`{field.encode_name}`",
            _type(field.type),
            _default(field),
            docstrings.get(field.name, ""),
        ]
        for field in info.fields
    ]
    if info.tag_field:
        rows.insert(0, [f"`{info.tag_field}`", "integer", f"`{info.tag}`", "The major version."])
    if info.array_like:
        numbered = [[str(position), *row] for position, row in enumerate(rows)]
        return table(("Place", "Field", "Type", "Default", "Meaning"), numbered)
    return (
        table(("Field", "Type", "Default", "Meaning"), rows) if rows else ["It has no fields.", ""]
    )


def example(form: MessageForm) -> list[str]:
    """Return the golden file of a form as a collapsed section."""
    path = GOLDEN / f"{form.name}.{'msgpack' if form.is_binary else 'json'}"
    data = path.read_bytes()
    if form.is_binary:
        data = msgspec.json.encode(msgspec.msgpack.decode(data))
    text = msgspec.json.format(data, indent=2).decode()
    return ["<details><summary>Example</summary>", "", "```json", text, "```", "</details>", ""]


def heading(level: int, title: str, cls: type[Any]) -> list[str]:
    """Return an anchor, a heading and the docstring of a struct or enum."""
    return [
        f'<a id="{anchors()[cls]}"></a>',
        f"{'#' * level} {title}",
        "",
        _class_docstring(cls),
        "",
    ]
