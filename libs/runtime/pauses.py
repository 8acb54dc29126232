"""A count of those who want something to rest: it goes on when the last of them has ended."""

from collections.abc import Generator
from contextlib import contextmanager


class Pauses:
    """True while somebody has asked for a pause; pauses may overlap."""

    def __init__(self) -> None:
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    @contextmanager
    def hold(self) -> Generator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
