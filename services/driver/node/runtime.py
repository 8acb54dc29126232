"""Configure the machine's container runtime: CDI, and the handlers of RuntimeClasses.

The runtime itself is asked what it knows, so that nothing is changed where nothing is missing. Its
files are written at once; it reads them when it starts. A restart keeps running containers, but
ends `kubectl exec` and pulls of images, so it waits until no pod computes on a GPU: an upgrade of
the driver, which drains the node, begins with it. If the runtime does not come back, or does not
know more than before, its files are taken back.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec.structs import replace

from libs.contracts.facts import ContainerRuntime
from libs.host import holders
from libs.host.diagnosing import RUNTIME_LACKS
from libs.host.files import CorruptUndoLog
from libs.host.machine import Machine
from libs.host.runtimes.common import NotConfigurable
from libs.host.runtimes.port import ContainerRuntime as Runtime
from libs.host.runtimes.port import (
    RestartRefused,
    RuntimeStatus,
    RuntimeUnavailable,
)
from libs.host.tree import Tree, Unreadable
from libs.runtime.clock import Clock
from libs.runtime.logs import logger
from libs.runtime.pauses import Pauses
from services.driver.node import runtime_attempt as attempts
from services.driver.node.inspection import describe_holders
from services.driver.node.runtime_steps import (
    Restart,
    Restarting,
    RuntimeSettings,
    Settled,
    StartAgain,
    Step,
    lacking,
    next_step,
)

_log = logger()

INTERVAL: Final = 5.0
"""Seconds between two looks for changes."""
BUSY_INTERVAL: Final = 30.0
"""Seconds between two searches for pods that compute, which go through all processes."""
POLL_INTERVAL: Final = 1.0
"""Seconds between two questions to a runtime that restarts."""
COMPUTE: Final = "/dev/nvidia-uvm"
"""The device file that only computing programs open; those that measure GPUs do not."""

BeforeRestart = Callable[[], Awaitable[None]]


class RuntimeKeeper:
    """The runtime of one machine."""

    def __init__(self, *, machine: Machine, clock: Clock, settings: RuntimeSettings) -> None:
        self._machine = machine
        self._clock = clock
        self._settings = settings
        self._lock = asyncio.Lock()
        self._pauses = Pauses()
        self._asked: tuple[object, RuntimeStatus] | None = None
        """The last answer of the runtime, behind the process that gave it.

        That process is not asked again: it reads its files only when it starts.
        """
        self._lacks: str | None = None
        """The text of the file RUNTIME_LACKS, written when it changes; None: not written yet."""
        self._busy = ""
        """The pods that computed on GPUs at the last search, for which a restart waits."""
        self._search_at = 0.0
        """When the next search may begin: it goes through all processes of the machine."""
        self.facts: ContainerRuntime | None = None
        """The handlers and the support of CDI that are reported; None before the first answer."""
        self.asked = asyncio.Event()
        if machine.runtime is None:
            self.asked.set()

    @property
    def cdi_problem(self) -> str:
        """Why no container can get a device by CDI; empty if it can, or nothing is known."""
        facts = self.facts
        return facts.why if facts is not None and facts.name and not facts.cdi else ""

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(INTERVAL)

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """Leave the runtime as it is until the end."""
        with self._pauses.hold():
            async with self._lock:
                pass
            yield

    async def look(self, *, before_restart: BeforeRestart | None = None) -> None:
        """Configure the runtime; restart it if it must be and may be, and wait until it is back."""
        runtime = self._machine.runtime
        if runtime is None or self._pauses:
            return
        async with self._lock:
            while await self._take_step(runtime, before_restart):
                await self._clock.sleep(POLL_INTERVAL)

    async def _take_step(self, runtime: Runtime, before_restart: BeforeRestart | None) -> bool:
        """Return whether the runtime is being restarted."""
        status = await self._machine.offload.run(lambda: self._ask(runtime))
        step = await self._machine.offload.run(lambda: self._next(status))
        if isinstance(step, Restart):
            step = await self._restart(runtime, step, before_restart)
        elif isinstance(step, StartAgain):
            await self._machine.offload.run(lambda: _start_again(runtime, step.unit))
        await self._machine.offload.run(lambda: self._note(status))
        self._report(status, step.why)
        return isinstance(step, Restarting)

    def _ask(self, runtime: Runtime) -> RuntimeStatus | str:
        """Return the runtime's answer about its handlers, or why it gave none."""
        instance = runtime.instance()
        if self._asked is not None and instance is not None and self._asked[0] == instance:
            return self._asked[1]
        try:
            status = runtime.status()
        except RuntimeUnavailable as error:
            self._asked = None
            return str(error)
        self._asked = (instance, status)
        return status

    def _next(self, status: RuntimeStatus | str) -> Step:
        tree, settings = self._machine.tree, self._settings
        try:
            return next_step(tree, settings, status, now=self._clock.now())
        except (NotConfigurable, CorruptUndoLog) as error:
            problem = str(error)
        except OSError as error:
            problem = f"its configuration cannot be read or written: {error}"
        known = "" if isinstance(status, str) else lacking(status, settings)
        return Settled(": ".join(filter(None, (known, problem))))

    async def _restart(
        self, runtime: Runtime, step: Restart, before_restart: BeforeRestart | None
    ) -> Settled | Restarting:
        """Restart the runtime, unless something speaks against it now."""
        attempt, run = step.attempt, self._machine.offload.run
        mode = self._settings.restart or ("systemd" if attempt.unit else "")
        problem = _mode_problem(mode, attempt.unit)
        if not problem and (before_restart or self._clock.monotonic() >= self._search_at):
            self._busy = await run(lambda: _computing(self._machine.tree))
            self._search_at = self._clock.monotonic() + (BUSY_INTERVAL if self._busy else 0.0)
        problem = problem or self._busy
        if problem:
            return Settled(f"{step.why} before it is restarted: {problem}")
        if before_restart is not None:
            await before_restart()
        _log.info("the container runtime is restarted", by=mode, because=step.why)

        def restart() -> None:
            attempts.save(self._machine.tree, replace(attempt, at=self._clock.now()))
            try:
                if mode == "systemd":
                    runtime.restart_unit(attempt.unit)
                else:
                    runtime.stop(attempt.pid)
            except RestartRefused:
                attempts.save(self._machine.tree, replace(attempt, at=0.0))
                raise

        try:
            await run(restart)
        except (RestartRefused, OSError) as error:
            return Settled(f"{step.why}, because it cannot be restarted: {error}")
        return Restarting(f"{step.why} before it is restarted, which is being done")

    def _note(self, status: RuntimeStatus | str) -> None:
        """Leave on the machine what a runtime lacks, for the validator's evidence."""
        if isinstance(status, str):
            return
        lacks = lacking(status, self._settings) if self._settings.configure else ""
        if lacks == self._lacks:
            return
        if lacks:
            self._machine.tree.write(RUNTIME_LACKS, lacks.encode())
        else:
            self._machine.tree.remove(RUNTIME_LACKS)
        self._lacks = lacks

    def _report(self, status: RuntimeStatus | str, why: str) -> None:
        if isinstance(status, str):
            facts = ContainerRuntime(why=why)
        else:
            known = tuple(each for each in self._settings.handlers if each in status.handlers)
            facts = ContainerRuntime(
                name=status.name, handlers=known, cdi=status.reads_cdi, why=why
            )
        if facts != self.facts:
            _log.info("the container runtime", handlers=list(facts.handlers), why=facts.why)
        self.facts = facts
        self.asked.set()


def _mode_problem(mode: str, unit: str) -> str:
    match mode:
        case "signal":
            return ""
        case "systemd":
            return "" if unit else "it runs in no unit of systemd: restart it by hand"
        case "none":
            return "restart it by hand, as RUNTIME_RESTART_MODE is none"
        case "":
            return (
                "it runs in no unit of systemd: restart it by hand, or set RUNTIME_RESTART_MODE to"
                " signal in spec.toolkit.env where another program starts it again"
            )
        case _:
            return f"RUNTIME_RESTART_MODE is {mode!r}: set signal, systemd or none"


def _computing(tree: Tree) -> str:
    """Return which pods compute on GPUs; empty if none does."""
    try:
        using = holders.holders(tree)
    except Unreadable as error:
        return f"the machine cannot be inspected: {error}"
    found = tuple(each for each in using if each.pod_uid and COMPUTE in each.devices)
    return f"it waits for pods that use GPUs: {describe_holders(found)}" if found else ""


def _start_again(runtime: Runtime, unit: str) -> None:
    """Let systemd start the runtime, which it may have given up."""
    if unit:
        with suppress(RestartRefused):
            runtime.restart_unit(unit)
