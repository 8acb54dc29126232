"""One direction of one connection of the in-process bus: first in, first out, until it is cut.

It carries acts, not messages, and does not know what they do.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from libs.testing.bus.faults import Chance

Act = Callable[[], object]


class Lane:
    """What is put in is done later, on the loop, in order; a cut forgets all that is under way."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._under_way: deque[tuple[float, Act]] = deque()
        self._aside: dict[int, asyncio.TimerHandle] = {}
        self._put_aside = 0
        self._next: asyncio.Handle | None = None

    def put(self, act: Act) -> None:
        """Do this after everything that was put in before."""
        loop = asyncio.get_running_loop()
        self._under_way.append((loop.time() + self._chance.wait(), act))
        if self._next is None:
            self._await_first(loop)

    def put_aside(self, act: Act, *, wait: float) -> None:
        """Do this in `wait` seconds, whatever else is under way."""
        self._put_aside += 1
        self._aside[self._put_aside] = asyncio.get_running_loop().call_later(
            wait, self._do_aside, self._put_aside, act
        )

    def cut(self) -> None:
        """Forget what is under way."""
        self._under_way.clear()
        for handle in self._aside.values():
            handle.cancel()
        self._aside.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _await_first(self, loop: asyncio.AbstractEventLoop) -> None:
        due, _ = self._under_way[0]
        self._next = (
            loop.call_soon(self._do_first)
            if due <= loop.time()
            else loop.call_at(due, self._do_first)
        )

    def _do_first(self) -> None:
        _, act = self._under_way.popleft()
        self._next = None
        if self._under_way:
            self._await_first(asyncio.get_running_loop())
        act()

    def _do_aside(self, number: int, act: Act) -> None:
        del self._aside[number]
        act()
