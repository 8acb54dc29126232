"""How an agent of ours sits on a simulated machine: what it is given, and how it is cut off.

All its blocking work goes through its `Seat`. The kernel's calls take as long there as the world
says, whether the work is done inline or in a thread; and once the agent was killed, nothing of it
reaches the machine any more.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from libs.forecast.world import ProcessEnd
from libs.host import modules
from libs.host.holders import holders
from libs.host.linux import InUse, Unloaded, UnloadResult
from libs.host.machine import Offload
from libs.testing.errors import SimError
from libs.testing.machines.incidents import IncidentKind
from libs.testing.machines.kernel import CONTROL, device
from libs.testing.machines.state import MachineState

T = TypeVar("T")


class AgentKilled(SimError):
    """An agent that was killed tried to reach its machine."""


class SimulatedAgentProcess:
    """One agent's process, and its `Access`."""

    def __init__(
        self, state: MachineState, access: Offload, *, comm: str, pod_uid: str, container_id: str
    ) -> None:
        self._site = state
        self._access = access
        self._comm = comm
        self._boot_id = state.boot_id
        self._pid = state.kernel.start(comm, pod_uid=pod_uid, container_id=container_id)
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

    def set_duration(self, seconds: float | None) -> None:
        """The work that is being done takes so long; None: it hangs."""
        self._taking.seconds = seconds

    def hold_library(self, held: bool) -> None:
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
            raise AgentKilled(
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
            self._site.end_writes()
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


class SimulatedLinux:
    """The kernel decides who is in the way; how the driver itself goes, the world has a say in."""

    def __init__(self, state: MachineState, process: SimulatedAgentProcess) -> None:
        self._site = state
        self._seat = process

    def unload(self, module: str) -> UnloadResult:
        """Take a module out, if nobody uses it."""
        kernel = self._site.kernel
        if module != modules.DRIVER or not kernel.is_idle(module):
            return kernel.unload(module)
        ending = self._asked()
        self._seat.set_duration(ending.after)
        if ending.after is None or ending.exit_code:
            return InUse(f"delete_module {module}: Resource temporarily unavailable")
        answer = kernel.unload(module)
        if isinstance(answer, Unloaded):
            self._look_for_holders()
        return answer

    def unmount_below(self, path: str) -> str | None:
        """Unmount everything at and below this path of the machine; it always can be."""
        self._site.kernel.unmount_below(path)
        return None

    def _asked(self) -> ProcessEnd:
        site = self._site
        return site.model.unload(site.name, site.next_attempt("unload"))

    def _look_for_holders(self) -> None:
        """As the files show them: the kernel's own count cannot judge itself."""
        for one in holders(self._site.tree):
            said = f"process {one.pid} ({one.comm}) has {', '.join(one.devices)} open"
            self._site.record_incident(IncidentKind.UNDER_A_HOLDER, said)
