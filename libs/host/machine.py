"""How blocking work on a machine is done from a loop: in a thread, or at once.

In a process every read of a file or a device blocks, so it goes to a thread. On a virtual loop
there are no threads, and the files are a test's own: it is done on the spot.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

import msgspec

from libs.host.gpus.port import Gpus
from libs.host.linux import Linux
from libs.host.tree import Tree

T = TypeVar("T")


class Offload(Protocol):
    """Does what blocks."""

    async def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raised."""
        ...


class InlineOffload:
    """At once, on the loop."""

    async def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raised."""
        return work()


class ThreadOffload:
    """In a thread of its own pool, so that no other user of threads waits behind a slow disk.

    Work that was begun ends by itself: cancelling the wait does not stop it.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix=name)

    async def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raised."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Take no more work; what is under way ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Its files, its kernel and its GPUs, and how they are reached without holding up a loop."""

    tree: Tree
    offload: Offload
    gpus: Gpus
    linux: Linux | None = None
    """None: this agent may not change the machine."""
