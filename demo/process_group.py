"""Child processes: started, watched and ended. No child outlives this process."""

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

import msgspec

from libs.testing.child_process import HOST, ChildProcess
from libs.testing.errors import ServerFailed

_LISTENING = "metrics server started"
_READY = "phase=ready"
_EXPORTING = "exporter started"
_PORT = re.compile(rf"{_LISTENING}.*\bport=(\d+)")
_PROBES = re.compile(r"probe server started.*\bport=(\d+)")
_EXPORTER = re.compile(rf"{_EXPORTING}.*\bport=(\d+)")
_START_SECONDS = 90.0
"""Seconds for a start, which needs one second of CPU time, on a busy machine."""
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each start of a process that has ended by itself; another end is a failure."""
_INHERITED = (
    *("PATH", "HOME", "TMPDIR", "LANG"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPYCACHEPREFIX"),
)


class ManagedProcess(msgspec.Struct, frozen=True, eq=False):
    name: str
    child: ChildProcess
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    restarts: bool = False
    """Whether it is started again if it ends by itself, as Kubernetes does with a container."""

    @property
    def metrics_url(self) -> str:
        return self._url(_PORT, "metrics")

    @property
    def livez_url(self) -> str:
        """The liveness probe; empty until the process listens."""
        return self._url(_PROBES, "livez")

    @property
    def exporter_url(self) -> str:
        """The metrics of all GPUs; empty for processes without them."""
        return self._url(_EXPORTER, "metrics")

    def exporter_url_of(self, node: str) -> str:
        """The metrics of one machine's GPUs."""
        return self._url(re.compile(rf"{_EXPORTING}.*\bnode={node}\b.*\bport=(\d+)"), "metrics")

    def _url(self, pattern: re.Pattern[str], page: str) -> str:
        match = pattern.search(self.child.log)
        return f"http://{HOST}:{match[1]}/{page}" if match else ""


OnRestart = Callable[[ManagedProcess, ServerFailed], Awaitable[None]]
"""Is given a process that is started again, and how it ended."""


class ProcessGroup(AbstractAsyncContextManager["ProcessGroup"]):
    """Processes that run while the group is entered, and end in reverse order of their start."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.processes: dict[str, ManagedProcess] = {}
        self._environ = {name: environ[name] for name in _INHERITED if name in environ}
        self._changed = asyncio.Event()
        self.restarts = Counter[str]()
        """How often each process was started again after it had ended by itself."""

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        try:
            await self.end()
        except ServerFailed:
            if error is None:
                raise

    async def end(self) -> None:
        """Stop all processes; then raise the first failure."""
        processes = list(self.processes.values())
        self.processes.clear()
        self._changed.set()
        problems = [problem for process in reversed(processes) if (problem := await _end(process))]
        if problems:
            raise problems[0]

    async def start(
        self, name: str, module: str, role: str, *, restarts: bool = False, **overrides: str
    ) -> ManagedProcess:
        """Run `python -m module role` with settings, and wait until it serves its metrics.

        `restarts`: it is started again if it ends by itself while `wait_failed` is awaited.
        """
        argv = (sys.executable, "-m", module, role)
        listening = {"METRICS_HOST": HOST, "METRICS_PORT": 0, "PROBES_HOST": HOST, "PROBES_PORT": 0}
        settings = {f"SLUICE_{key}": str(value) for key, value in listening.items()}
        settings["SLUICE_LOG_FORMAT"] = "text"
        settings |= {f"SLUICE_{key.upper()}": value for key, value in overrides.items()}
        environ = {**self._environ, **settings}
        process = await self._spawn(name, argv, environ, restarts=restarts)
        await process.child.wait_for_log(_LISTENING, within=_START_SECONDS)
        return process

    async def wait_ready(self, *names: str) -> None:
        for name in names:
            await self.processes[name].child.wait_for_log(_READY, within=_START_SECONDS)

    async def kill(self, name: str) -> None:
        """Kill a process with SIGKILL, and start it again."""
        process = self.processes.pop(name)
        await process.child.destroy()
        await self._spawn(name, process.argv, process.environ, restarts=process.restarts)

    async def wait_failed(self, told: OnRestart | None = None) -> ServerFailed:
        """Return the failure of the first process that ends by itself and is not started again.

        `told` is given each that is, with its end. Without it none is.
        """
        while True:
            ended = await self._wait_ended()
            failure = ended.child.failure("ended by itself")
            number = self.restarts[ended.name]
            if told is None or not ended.restarts or number == len(_PAUSES):
                return failure
            self.restarts[ended.name] += 1
            await told(ended, failure)
            await asyncio.sleep(_PAUSES[number])
            if self.processes.get(ended.name) is ended:  # not killed, nor all ended, meanwhile
                await self._spawn(ended.name, ended.argv, ended.environ, restarts=True)

    async def _wait_ended(self) -> ManagedProcess:
        """Return the first process that ends by itself."""
        while True:
            self._changed.clear()
            waits = {
                asyncio.create_task(process.child.wait(), name=f"watching {process.name}"): process
                for process in self.processes.values()
            }
            changed = asyncio.create_task(self._changed.wait(), name="watching the group")
            try:
                await asyncio.wait([*waits, changed], return_when=asyncio.FIRST_COMPLETED)
                for task, process in waits.items():
                    if task.done() and self.processes.get(process.name) is process:
                        return process
            finally:
                for task in (*waits, changed):
                    task.cancel()
                await asyncio.wait([*waits, changed])

    async def _spawn(
        self, name: str, argv: tuple[str, ...], environ: Mapping[str, str], *, restarts: bool
    ) -> ManagedProcess:
        child = await ChildProcess.start(name, *argv, environ=environ)
        process = self.processes[name] = ManagedProcess(name, child, argv, environ, restarts)
        self._changed.set()
        return process


async def _end(process: ManagedProcess) -> ServerFailed | None:
    try:
        await process.child.end(signal.SIGTERM, code=0)
    except ServerFailed as failure:
        return failure
    finally:
        await process.child.destroy()
    return None
