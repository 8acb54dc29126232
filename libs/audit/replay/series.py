"""Values over the positions of a journal."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Series(Generic[Value]):
    """Values in the order of their positions; each holds until the next one."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._values: list[Value] = []

    @property
    def last(self) -> Value | None:
        return self._values[-1] if self._values else None

    def append(self, position: int, value: Value) -> None:
        self._positions.append(position)
        self._values.append(value)

    def append_newer(self, position: int, value: Value) -> None:
        """Append a value, unless its position is not after the last one."""
        if not self._positions or position > self._positions[-1]:
            self.append(position, value)

    def at(self, position: int) -> Value | None:
        """Return the value that holds after a position; None before the first."""
        count = bisect_right(self._positions, position)
        return self._values[count - 1] if count else None

    def first_after(self, position: int) -> tuple[int, Value] | None:
        """Return the first item after a position."""
        index = bisect_right(self._positions, position)
        return (self._positions[index], self._values[index]) if index < len(self._values) else None

    def items(self) -> Iterator[tuple[int, Value]]:
        return zip(self._positions, self._values, strict=True)

    def between(self, after: int, until: int) -> Iterator[tuple[int, Value]]:
        """Return positions and values from after one position up to another."""
        part = slice(bisect_right(self._positions, after), bisect_right(self._positions, until))
        return zip(self._positions[part], self._values[part], strict=True)
