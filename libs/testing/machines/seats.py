"""How an agent of ours sits on a simulated machine: what it is given, and how it is cut off.

All its blocking work goes through its `Seat`. The kernel's calls take as long there as the world
says, whether the work is done inline or in a thread; and once the agent was killed, nothing of it
reaches the machine any more.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from libs.host.access import Access
from libs.testing.errors import SimError
from libs.testing.machines.kernel import CONTROL, device
from libs.testing.machines.site import Site

T = TypeVar("T")


class Killed(SimError):
    """An agent that was killed tried to reach its machine."""


class Seat:
    """One agent's process, and its `Access`."""

    def __init__(
        self, site: Site, access: Access, *, comm: str, pod_uid: str, container_id: str
    ) -> None:
        self._site = site
        self._access = access
        self._comm = comm
        self._boot_id = site.boot_id
        self._pid = site.kernel.start(comm, pod_uid=pod_uid, container_id=container_id)
        self._ended = asyncio.Event()
        self._taking = threading.local()

    async def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raised, when it has taken its time."""
        self._check()
        done = await self._access.do(lambda: self._done(work))
        if done.took is None:
            await self._ended.wait()
        elif done.took:
            await self._site.clock.sleep(done.took)
        self._check()
        return done.result()

    def takes(self, seconds: float | None) -> None:
        """The work that is being done takes so long; None: it hangs."""
        self._taking.seconds = seconds

    def hold(self, held: bool) -> None:
        """The agent has the driver's library open, or has let go of it."""
        kernel, gpus = self._site.kernel, self._site.gpus
        if held:
            kernel.open(self._pid, (CONTROL, *(device(gpu.minor) for gpu in gpus)))
        else:
            kernel.close(self._pid)

    def end(self) -> None:
        """The agent is gone, and holds nothing."""
        self._ended.set()
        self._site.kernel.end(self._pid)

    def _check(self) -> None:
        if self._ended.is_set():
            raise Killed(
                f"{self._comm} on {self._site.name}, of boot {self._boot_id}, was killed:"
                " nothing of it reaches the machine"
            )

    def _done(self, work: Callable[[], T]) -> "_Done[T]":
        self._taking.seconds = 0.0
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  (it is raised when its time is over)
            return _Done(took=self._taking.seconds, error=error)
        finally:
            self._site.settle()
        return _Done(took=self._taking.seconds, results=(result,))


class _Done(Generic[T]):
    def __init__(
        self, *, took: float | None, results: tuple[T, ...] = (), error: Exception | None = None
    ) -> None:
        self.took = took
        self._results = results
        self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]
