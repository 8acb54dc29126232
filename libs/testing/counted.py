"""Tasks and futures that hash by a count.

By address, as everything else in Python does, sets of them would be walked in another order in each
process: a TaskGroup would cancel its children in another order, `asyncio.wait` would listen in
another order. What `asyncio.gather` returns hashes by address still: put tasks into sets.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class CountedTask(asyncio.Task[T]):
    """Two of one loop have different numbers, and the same ones in every run."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context | None,
    ) -> None:
        self._number = number  # first: the base class puts the task into a weak set
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class CountedFuture(asyncio.Future[Any]):
    """The loop gives the number right after making it; a future is in no set before."""

    number = 0

    def __hash__(self) -> int:
        return self.number
