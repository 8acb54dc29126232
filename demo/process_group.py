"""The processes of the demo: started by the programs of production, watched, and ended.

None outlives this process, however that ends. Must not know what a process is for.
"""

import asyncio
import re
import signal
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from libs.testing.child_process import ChildProcess
from libs.testing.errors import ServerFailed
from libs.testing.ports import HOST

_LISTENS = "http server started"
_READY = "phase=ready"
_SERVES = "exporter started"
_PORT = re.compile(rf"{_LISTENS}.*\bport=(\d+)")
_EXPORTER = re.compile(rf"{_SERVES}.*\bport=(\d+)")
_STARTS_WITHIN = 90.0
"""Seconds: a start is a second of computing, and a machine that does much else has little of it."""
_PASSED_ON = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONPYCACHEPREFIX",
)


class ManagedProcess:
    """One process, by name: its present life."""

    def __init__(
        self, name: str, child: ChildProcess, argv: tuple[str, ...], environ: Mapping[str, str]
    ):
        self.name = name
        self.child = child
        self.argv = argv
        self.environ = environ

    @property
    def metrics_url(self) -> str:
        """Where its metrics are."""
        return self._url(_PORT)

    @property
    def exporter_url(self) -> str:
        """Where those of its GPUs are; empty: it has none."""
        return self._url(_EXPORTER)

    def _url(self, pattern: re.Pattern[str]) -> str:
        found = pattern.search(self.child.log)
        return f"http://{HOST}:{found[1]}/metrics" if found else ""


class ProcessGroup:
    """All processes while it is entered; they end in the reverse of the order in which they began.

    `failed` comes back when one has ended that was not told to.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.processes: dict[str, ManagedProcess] = {}
        self._environ = {name: environ[name] for name in _PASSED_ON if name in environ}
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.end()
        except ServerFailed:
            if error is None:
                raise

    async def end(self) -> None:
        """All of them, in good order; one that ended badly is said when none is left."""
        left = list(self.processes.values())
        self.processes.clear()
        self._news.set()
        problems = [problem for worker in reversed(left) if (problem := await _ended(worker))]
        if problems:
            raise problems[0]

    async def start(self, name: str, module: str, role: str, **told: str) -> ManagedProcess:
        """`python -m module role`, with these settings; it has said where it listens."""
        argv = (sys.executable, "-m", module, role)
        settings = {"SLUICE_HTTP_HOST": HOST, "SLUICE_HTTP_PORT": "0", "SLUICE_LOG_FORMAT": "text"}
        settings |= {f"SLUICE_{key.upper()}": value for key, value in told.items()}
        worker = await self._begin(name, argv, {**self._environ, **settings})
        await worker.child.wait_for_log(_LISTENS, within=_STARTS_WITHIN)
        return worker

    async def wait_ready(self, *names: str) -> None:
        """Wait until these serve."""
        for name in names:
            await self.processes[name].child.wait_for_log(_READY, within=_STARTS_WITHIN)

    async def kill(self, name: str) -> None:
        """With no chance to say or write anything; then start it again, as it was started."""
        worker = self.processes.pop(name)
        await worker.child.destroy()
        await self._begin(name, worker.argv, worker.environ)

    async def wait_failed(self) -> ServerFailed:
        """Wait for one that ends by itself."""
        while True:
            self._news.clear()
            lives = {
                asyncio.create_task(worker.child.wait(), name=f"watching {worker.name}"): worker
                for worker in self.processes.values()
            }
            news = asyncio.create_task(self._news.wait(), name="watching the crew")
            try:
                await asyncio.wait([*lives, news], return_when=asyncio.FIRST_COMPLETED)
                for life, worker in lives.items():
                    if life.done() and self.processes.get(worker.name) is worker:
                        return worker.child.failure("ended by itself")
            finally:
                for task in (*lives, news):
                    task.cancel()
                await asyncio.wait([*lives, news])

    async def _begin(
        self, name: str, argv: tuple[str, ...], environ: Mapping[str, str]
    ) -> ManagedProcess:
        child = await ChildProcess.start(name, *argv, environ=environ)
        worker = self.processes[name] = ManagedProcess(name, child, argv, environ)
        self._news.set()
        return worker


async def _ended(worker: ManagedProcess) -> ServerFailed | None:
    try:
        await worker.child.end(signal.SIGTERM, code=0)
    except ServerFailed as failure:
        return failure
    finally:
        await worker.child.destroy()
    return None
