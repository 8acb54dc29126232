"""A machine's files, kernel and GPUs, and blocking calls to them off the event loop.

A process makes these calls in threads. A virtual event loop has no threads and makes them inline.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Protocol, Self, TypeVar

import msgspec

from libs.host.cuda.port import Cuda
from libs.host.gpus.port import Gpus
from libs.host.linux import Linux
from libs.host.runtimes.port import ContainerRuntime
from libs.host.tree import Tree

T = TypeVar("T")


class _Closing(Protocol):
    def close(self) -> None: ...


D = TypeVar("D", bound=_Closing)


class Offload(Protocol):
    """Run blocking calls."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work`; return its result or raise its error."""
        ...


class InlineOffload:
    """Run blocking calls at once, on the event loop."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()


class ThreadOffload:
    """Run blocking calls in a thread pool of its own, so that a slow disk delays nothing else.

    Cancelling the wait does not stop a call that has begun.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def closed_at_end(device: D, offload: Offload) -> AsyncGenerator[D]:
    """Close the GPUs, or CUDA, at the end, which ends calls that wait for the driver."""
    try:
        yield device
    finally:
        await offload.run(device.close)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent may use of its machine."""

    tree: Tree
    offload: Offload
    gpus: Gpus
    linux: Linux | None = None
    """None for an agent that may not change the machine."""
    cuda: Cuda | None = None
    """None for an agent that proves nothing."""
    runtime: ContainerRuntime | None = None
    """None for an agent that has nothing to do with it."""
