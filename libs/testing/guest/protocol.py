"""Calls from a test to the guest, as lines over a serial port."""

import base64
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

READY: Final = b"the guest is ready\n"
"""The first line after each boot."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that both sides can import, and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    traceback: str


def encode(message: Call | Returned | Raised) -> bytes:
    return base64.b64encode(pickle.dumps(message)) + b"\n"


def decode(line: bytes) -> Any:
    """Return what the other side sent; both are ours."""
    return pickle.loads(base64.b64decode(line))  # noqa: S301
