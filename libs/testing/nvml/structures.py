"""C structures described once, in Python: as ctypes types, and as a C header made from them."""

import ctypes
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Any, TypeVar, get_type_hints

I32 = Annotated[int, ctypes.c_int32]
I64 = Annotated[int, ctypes.c_int64]
U32 = Annotated[int, ctypes.c_uint32]
U64 = Annotated[int, ctypes.c_uint64]
Double = Annotated[float, ctypes.c_double]
Pointer = Annotated[int | None, ctypes.c_void_p]
String = Annotated[bytes | None, ctypes.c_char_p]
Text16 = Annotated[bytes, ctypes.c_char * 16]
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
    """Make the annotated attributes of a class its fields.

    A class with empty `__slots__` refuses to set anything that is not a field.
    """
    hints = get_type_hints(cls, include_extras=True)
    cls._fields_ = [(name, hint.__metadata__[0]) for name, hint in hints.items()]
    return cls


def c_header(
    *,
    enums: Iterable[type[IntEnum]],
    constants: dict[str, str],
    structures: Iterable[type[ctypes.Structure]],
) -> str:
    """Return declarations, and assertions that the compiler's layout is that of ctypes."""
    parts = ["#pragma once", "#include <stddef.h>", "#include <stdint.h>"]
    parts += [f"#define {name} {value}" for name, value in constants.items()]
    parts += [_enum(enum) for enum in enums]
    for kind in structures:
        parts += [_declaration(kind), *_assertions(kind)]
    return "\n".join(parts) + "\n"


def c_name(name: str) -> str:
    """Return the C name of a Python class."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _enum(enum: type[IntEnum]) -> str:
    prefix = c_name(enum.__name__).upper()
    return f"enum {{ {', '.join(f'{prefix}_{item.name} = {item.value}' for item in enum)} }};"


def _declaration(kind: type[ctypes.Structure]) -> str:
    lines = [f"struct {c_name(kind.__name__)} {{"]
    lines += [f"    {_member(name, field)};" for name, field in _fields(kind)]
    return "\n".join([*lines, "};"])


def _member(name: str, field: Any) -> str:
    dimensions = ""
    while issubclass(field, ctypes.Array):
        dimensions += f"[{field._length_}]"
        field = field._type_
    if issubclass(field, ctypes.Structure):
        return f"struct {c_name(field.__name__)} {name}{dimensions}"
    return f"{_C_TYPES[field]} {name}{dimensions}"


def _assertions(kind: type[ctypes.Structure]) -> list[str]:
    name = f"struct {c_name(kind.__name__)}"
    lines = [f'_Static_assert(sizeof({name}) == {ctypes.sizeof(kind)}, "size of {name}");']
    for field, _ in _fields(kind):
        offset = getattr(kind, field).offset
        place = f"{name}.{field}"
        lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{place}");')
    return lines


def _fields(kind: type[ctypes.Structure]) -> list[tuple[str, Any]]:
    return [(field[0], field[1]) for field in kind._fields_]
