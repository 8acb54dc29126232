"""The value of something that a test knows to be there."""

from typing import TypeVar

V = TypeVar("V")


def not_none(value: V | None) -> V:
    """Return the value, or fail."""
    if value is None:
        raise AssertionError("it is not there")
    return value
