"""C structures described once, in Python: as ctypes types, and as a C header made from them."""

import ctypes
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Annotated, Any, TypeVar, cast, get_type_hints

I32 = Annotated[int, ctypes.c_int32]
U32 = Annotated[int, ctypes.c_uint32]
U64 = Annotated[int, ctypes.c_uint64]
Double = Annotated[float, ctypes.c_double]
Pointer = Annotated[int | None, ctypes.c_void_p]
Text32 = Annotated[bytes, ctypes.c_char * 32]
Text64 = Annotated[bytes, ctypes.c_char * 64]
Text96 = Annotated[bytes, ctypes.c_char * 96]
Text256 = Annotated[bytes, ctypes.c_char * 256]
Uuid = Annotated[ctypes.Array[ctypes.c_uint8], ctypes.c_uint8 * 16]

_C_TYPES: dict[type, str] = {
    ctypes.c_char: "char",
    ctypes.c_uint8: "uint8_t",
    ctypes.c_int32: "int32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_uint32: "uint32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_double: "double",
    ctypes.c_void_p: "void *",
    ctypes.c_char_p: "const char *",
}


StructureType = TypeVar("StructureType", bound=type[ctypes.Structure])


def structure(cls: StructureType) -> StructureType:
    """Return a class whose fields are the annotated attributes of this one.

    It has no other place for attributes, so that it refuses to set what is no field.
    """
    hints = get_type_hints(cls, include_extras=True)
    fields = [(name, hint.__metadata__[0]) for name, hint in hints.items()]
    body = {
        name: vars(cls)[name]
        for name in ("__module__", "__doc__", "__qualname__")
        if name in vars(cls)
    }
    return cast(Any, type(cls))(
        cls.__name__, cls.__bases__, {**body, "__slots__": (), "_fields_": fields}
    )


def c_header(
    *,
    enums: Iterable[type[IntEnum]],
    constants: Mapping[str, str],
    structures: Mapping[str, type[ctypes.Structure]],
) -> str:
    """Return declarations, and assertions that the compiler's layout is that of ctypes.

    `structures` are by their name in C; a part of another structure goes before it.
    """
    parts = ["#pragma once", "#include <stddef.h>", "#include <stdint.h>"]
    parts += [f"#define {name} {value}" for name, value in constants.items()]
    parts += [_enum(enum) for enum in enums]
    names = {kind: name for name, kind in structures.items()}
    for name, kind in structures.items():
        parts += [_declaration(name, kind, names), *_assertions(name, kind)]
    return "\n".join(parts) + "\n"


def c_name(name: str) -> str:
    """Return the C name of a Python class, or of a field of NVIDIA's."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def by_name(*kinds: type[ctypes.Structure]) -> dict[str, type[ctypes.Structure]]:
    return {c_name(kind.__name__): kind for kind in kinds}


def _enum(enum: type[IntEnum]) -> str:
    prefix = c_name(enum.__name__).upper()
    return f"enum {{ {', '.join(f'{prefix}_{item.name} = {item.value}' for item in enum)} }};"


def _declaration(
    name: str, kind: type[ctypes.Structure], names: Mapping[type[ctypes.Structure], str]
) -> str:
    lines = [f"    {_member(c_name(field), type_, names)};" for field, type_ in _fields(kind)]
    return "\n".join([f"struct {name} {{", *lines, "};"])


def _member(name: str, field: Any, names: Mapping[type[ctypes.Structure], str]) -> str:
    dimensions = ""
    while issubclass(field, ctypes.Array):
        dimensions += f"[{field._length_}]"
        field = field._type_
    if issubclass(field, ctypes.Structure):
        return f"struct {names[field]} {name}{dimensions}"
    if issubclass(field, ctypes.Union):  # a number, of which another member says the type
        field = ctypes.c_uint64
    if hasattr(field, "contents"):
        field = ctypes.c_void_p  # handles of the library are numbers
    return f"{_C_TYPES[field]} {name}{dimensions}"


def _assertions(name: str, kind: type[ctypes.Structure]) -> list[str]:
    name = f"struct {name}"
    lines = [f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "size of {name}");']
    for field, _ in _fields(kind):
        offset, place = getattr(kind, field).offset, f"{name}.{field}"
        lines.append(f'_Static_assert(offsetof({name}, {c_name(field)}) == {offset}, "{place}");')
    return lines


def _fields(kind: type[ctypes.Structure]) -> list[tuple[str, Any]]:
    return [(field[0], field[1]) for field in kind._fields_]
