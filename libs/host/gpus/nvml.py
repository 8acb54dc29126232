"""The GPUs of a real machine, read through NVML in a process of its own (`child`).

The agent never waits for the driver: each question has a deadline. A GPU that misses it is late, is
asked once more, and is hung if it does not answer then either, while the others go on. When all are
hung, the process is killed, and the next `open` starts another. A process that ends by itself is
replaced at once, and asked again. One that survives its kill waits in the driver: then nothing but
a reboot helps, and every call says so at once.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuProblem
from libs.contracts.telemetry import GpuSample
from libs.host import driver_files, persistence
from libs.host.gpus import library, problems
from libs.host.gpus.deadlines import Deadlines
from libs.host.gpus.division import Activation, GpuDivision, InstanceProfile
from libs.host.gpus.errors import GpuErrors
from libs.host.gpus.port import DriverLibrary, GpusUnavailable
from libs.host.gpus.process import Ended, NvmlProcess
from libs.host.gpus.protocol import (
    NO_GPU,
    CreateInstance,
    DestroyInstance,
    Failed,
    Open,
    Opened,
    Reply,
    Request,
    SetMigMode,
)
from libs.host.gpus.session import Session, Silent
from libs.host.kernel_log import KernelLog, SwitchError
from libs.host.tree import Tree
from libs.runtime.logs import logger

T = TypeVar("T")


_DEADLINES: Final = Deadlines()

_log = logger()


class NvmlGpus:
    """The port `Gpus` of a real machine: starts NVML's process, asks it, and ends it on command.

    `nvml_library` is a path to the library or its folder, and final; without it, the library of a
    driver container below `driver_root` goes before that of the machine. `start` starts the
    process.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        nvml_library: str = "",
        driver_root: str = driver_files.ROOT,
        deadlines: Deadlines = _DEADLINES,
        start: Callable[[str], NvmlProcess] = NvmlProcess,
    ) -> None:
        self._tree = tree
        self._setting = nvml_library
        self._driver_root = driver_root
        self._deadlines = deadlines
        self._start = start
        self._lock = threading.Lock()
        self._close_requests = _Counter()
        self._process: NvmlProcess | None = None
        self._stuck: NvmlProcess | None = None
        self._session: Session | None = None
        self._errors = GpuErrors(KernelLog(tree))

    def open(self) -> DriverLibrary:
        with self._lock:
            return self._opened().library

    def close(self) -> None:
        with self._close_requests:
            if (process := self._process) is not None:
                process.kill()  # another thread may wait for its answer
            with self._lock:
                self._end()
                self._require_no_stuck_process()

    def describe(self) -> tuple[Gpu, ...]:
        return self._query(Session.describe)

    def links(self) -> Mapping[str, tuple[str, ...]]:
        return self._query(Session.links)

    def sample(self) -> tuple[GpuSample, ...]:
        return self._query(Session.sample)

    def sweep(self) -> tuple[tuple[Gpu, ...], tuple[GpuSample, ...]]:
        return self._query(Session.sweep)

    def follow_log(self, after: int | None) -> None:
        with self._lock:
            self._errors.follow_log(after)

    @property
    def logged_until(self) -> int | None:
        return self._errors.logged_until

    def errors(self) -> Mapping[str, tuple[int, ...]]:
        with self._lock:
            if self._session is not None:
                self._errors.begin()
                # The next query finds the reason of an error, and says it.
                with suppress(Ended, Silent, GpusUnavailable):
                    self._receive_events(self._session)
                self._keep_errors(self._session)
            return self._errors.take()

    def switch_errors(self) -> tuple[SwitchError, ...]:
        with self._lock:
            return self._errors.take_switch_errors()

    def division(self, uuid: str) -> GpuDivision:
        return self._query(lambda session: session.division(uuid, self._deadlines.hung))

    def set_mig_mode(self, uuid: str, *, on: bool) -> Activation:
        with self._lock:
            self._require_open()
            # The driver needs the GPU for itself, and afterwards it has another number: so a
            # process that does not wait for XIDs changes it, and then ends.
            self._end()
            self._opened(events=False)
            try:
                status = self._answered(
                    lambda session: session.change(
                        uuid, lambda key, gpu: SetMigMode(key, gpu, on), self._deadlines.change
                    )
                )
            finally:
                self._end()
            return problems.activation(status)

    def create_instance(
        self, uuid: str, profile: InstanceProfile, *, start: int, compute: Sequence[int]
    ) -> None:
        # A smaller one that comes first may lie where the larger one would have to.
        place = (profile.id, start, profile.size, tuple(sorted(compute, reverse=True)))
        self._change(uuid, lambda key, gpu: CreateInstance(key, gpu, *place))

    def destroy_instance(self, uuid: str, number: int) -> None:
        self._change(uuid, lambda key, gpu: DestroyInstance(key, gpu, number))

    def _change(self, uuid: str, question: Callable[[int, int], Request]) -> None:
        with self._lock:
            self._require_open()
            self._answered(lambda session: session.change(uuid, question, self._deadlines.change))

    def _query(self, query: Callable[[Session], T]) -> T:
        """Ask; if the process ends by itself meanwhile, ask another one again."""
        with self._lock:
            self._require_open()
            return self._answered(query, again=True)

    def _require_open(self) -> None:
        if self._session is None:
            self._require_no_stuck_process()
            raise GpusUnavailable(None, "the GPUs are not open")

    def _answered(self, query: Callable[[Session], T], *, again: bool = False) -> T:
        try:
            return query(self._opened())
        except Silent:
            raise self._given_up() from None
        except Ended as error:
            if not again:
                raise self._given_up(error) from None
            self._replace(error)
        return self._answered(query)

    def _opened(self, *, events: bool = True) -> Session:
        """Return the session; start one if there is none."""
        if self._session is not None:
            return self._session
        self._require_no_stuck_process()
        is_loaded = library.is_driver_loaded(self._tree)
        if is_loaded is False:
            raise GpusUnavailable(GpuProblem.DRIVER_NOT_LOADED)
        reply = self._start_process(events=events)
        if isinstance(reply, Opened):
            self._session = Session(self._running(), reply, self._deadlines)
            return self._session
        if not isinstance(reply, Failed):
            raise self._given_up()
        self._end()
        problem = problems.open_problem(
            reply.code, is_loaded=bool(is_loaded), control_errno=reply.control_errno
        )
        raise GpusUnavailable(problem, reply.detail or f"NVML's error {reply.code}")

    def _start_process(self, *, events: bool) -> Reply | None:
        """Start a process and open NVML in it; return its answer, if there is one."""
        with suppress(OSError):  # without the daemon, NVML says that the GPU is in use
            persistence.lead_to_socket(self._tree, driver_root=self._driver_root)
        path = library.find_library(
            self._tree, setting=self._setting, driver_root=self._driver_root
        )
        try:
            return self._ask_new_process(path, events=events)
        except Ended as error:
            self._replace(error)
        try:
            return self._ask_new_process(path, events=events)
        except Ended as error:
            raise self._given_up(error) from None

    def _ask_new_process(self, path: str, *, events: bool) -> Reply | None:
        try:
            self._process = self._start(path)
        except OSError as error:
            raise GpusUnavailable(GpuProblem.NO_ANSWER, f"it did not start: {error}") from None
        if self._close_requests.any:
            raise Ended("it was closed")
        question = Open(1, events=events)
        return self._process.ask([question], seconds=self._deadlines.open).get(NO_GPU)

    def _replace(self, error: Ended) -> None:
        """End what is left of a process that ended by itself; raise if it was closed."""
        if self._close_requests.any:
            raise self._given_up(error) from None
        reason = f"{error}: {self._running().end_reason()}"
        self._end()
        self._require_no_stuck_process()
        _log.warning("NVML's process ended, and another is started", reason=reason)

    def _given_up(self, error: Ended | None = None) -> GpusUnavailable:
        """End a process that does not answer, or has ended; return the reason."""
        detail = "" if error is None else f"{error}: {self._running().end_reason()}"
        self._end()
        return self._stuck_problem() or GpusUnavailable(GpuProblem.NO_ANSWER, detail)

    def _running(self) -> NvmlProcess:
        if self._process is None:
            raise RuntimeError("there is no NVML process")
        return self._process

    def _receive_events(self, session: Session) -> None:
        session.process.take_late_answers()
        if session.process.events:
            session.require_described()

    def _keep_errors(self, session: Session) -> None:
        self._errors.learn(session.known.values())
        self._errors.add(session.take_events(), session.known)

    def _end(self) -> None:
        """End the process, if there is one, and keep the XIDs that it reported."""
        process, self._process = self._process, None
        session, self._session = self._session, None
        if process is None:
            return
        process.kill()
        limit = self._deadlines
        if not process.has_ended(within=limit.kill) and (
            process.waits_in_the_kernel() or not process.has_ended(within=limit.busy)
        ):
            self._stuck = process
        else:
            process.close()
        if session is not None:
            self._keep_errors(session)

    def _require_no_stuck_process(self) -> None:
        if (problem := self._stuck_problem()) is not None:
            raise problem

    def _stuck_problem(self) -> GpusUnavailable | None:
        """Return the problem of an earlier process that could not be killed, until it ends."""
        if self._stuck is None:
            return None
        if not self._stuck.has_ended():
            return GpusUnavailable(GpuProblem.DRIVER_HUNG, f"process {self._stuck.pid}")
        self._stuck.close()
        self._stuck = None
        return None


class _Counter:
    """Counts the threads within it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def any(self) -> bool:
        return self._count > 0

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *_raised: object) -> None:
        with self._lock:
            self._count -= 1
