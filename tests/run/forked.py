"""Worker processes that are forked once all tests are collected: imported and collected is once.

The process that collects forks its workers, gives them the units of the plan one by one, and
reports what they send. A worker that dies is told as the failure of its test; another goes on.
"""

import atexit
import ctypes
import gc
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, Literal, NamedTuple, NoReturn

import pytest

from libs.testing.virtual_loop import VirtualLoop
from tests.run.costs import cpu_seconds
from tests.run.leavings import Leavings
from tests.run.plan import Plan, Unit
from tests.run.progress import (
    SECONDS_AT_ONE_PLACE,
    SECONDS_AT_ONE_PLACE_ON_A_GROUND,
    ProgressWatch,
)

_PR_SET_PDEATHSIG: Final = 1
_EXITS: Final[Any] = atexit
"""A process that is forked is to run its own alone, which is more than the module promises."""
_SECONDS_TO_END: Final = 60.0
"""How long a worker that was interrupted may take to end its ground."""
_SECONDS_TO_INTERRUPT_AGAIN: Final = 2.0


class Started(NamedTuple):
    """A test starts."""

    place: int
    at: float


class Reported(NamedTuple):
    """A phase of a test is over."""

    data: dict[str, Any]


class Done(NamedTuple):
    """A test is over, and has taken CPU seconds."""

    place: int
    cpu: float


class UnitDone(NamedTuple):
    """A unit is over, and what its tests shared has ended."""

    cpu: float
    """What its shared fixtures took."""


class Hung(NamedTuple):
    """The worker ends because its test makes no progress, or it failed itself."""

    text: str


class Channel:
    """One end of a pipe; the thread that watches progress writes to it as well."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        data = pickle.dumps(message)
        with self._lock:
            self.connection.send_bytes(data)

    def send_last(self, message: object) -> None:
        """Send this, and nothing after it: a test that hung goes on once its children are killed,
        and what it then reports would count beside its failure.
        """
        data = pickle.dumps(message)
        self._lock.acquire()
        self.connection.send_bytes(data)

    def receive(self) -> Any:
        return pickle.loads(self.connection.recv_bytes())


class Worker:
    """A worker as the process that forked it sees it."""

    def __init__(self, number: int, pid: int, channel: Channel) -> None:
        self.number = number
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.unit: Unit | None = None
        self.since = time.monotonic()
        self.done = 0
        """Tests of its unit that are over."""
        self.running: Started | None = None
        self.hung: str | None = None

    def give(self, unit: Unit) -> None:
        self.unit, self.done, self.since = unit, 0, time.monotonic()
        with suppress(OSError):  # it has ended, which is told as the failure of the unit's first
            self.channel.send(unit)

    def end(self) -> int:
        """Wait for the process, and return how it ended."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self.channel.connection.close()
        return os.waitstatus_to_exitcode(status)

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)


class Observer:
    """What is told while workers run; see `tests.run.told`."""

    def reported(self, report: pytest.TestReport) -> None: ...
    def done(self, place: int, cpu: float) -> None: ...
    def unit_done(self, unit: Unit, *, seconds: float, cpu: float) -> None: ...
    def looked(self, workers: Sequence[Worker]) -> None: ...


class Workers:
    """Forks workers and gives them the units of a plan until all are done."""

    def __init__(
        self, session: pytest.Session, plan: Plan, number: int, observer: Observer
    ) -> None:
        self._session = session
        self._plan = plan
        self._number = number
        self._observer = observer
        self._workers: list[Worker] = []
        self._forked = 0

    def run(self) -> None:
        config: Any = self._session.config
        config._tmp_path_factory.getbasetemp()  # one folder, in which each worker has its own
        gc.collect()
        gc.freeze()  # so that workers neither copy what all share nor search it for garbage
        VirtualLoop.freezes = False
        try:
            for _ in range(min(self._number, len(self._plan.units))):
                self._fork()
            while self._workers:
                self._look()
            if self._plan.units:
                raise RuntimeError(
                    f"all workers have ended, and {len(self._plan.units)} units of the plan were"
                    " not run: look above for the first worker that failed"
                )
        except BaseException:
            self._interrupt()
            raise

    def _fork(self) -> None:
        ours, theirs = Pipe()
        self._forked += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for worker in self._workers:
                worker.channel.connection.close()
            _work(self._session, Channel(theirs), self._forked)
        theirs.close()
        worker = Worker(self._forked, pid, Channel(ours))
        self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: Worker) -> None:
        unit = self._plan.next(worker.number)
        if unit is not None:
            worker.give(unit)

    def _look(self) -> None:
        """Handle what workers have sent, or the death of one."""
        by_connection = {worker.channel.connection: worker for worker in self._workers}
        by_process = {worker.pidfd: worker for worker in self._workers}
        ready = wait([*by_connection, *by_process], timeout=1.0)
        for one in ready:
            if isinstance(one, Connection) and (worker := by_connection[one]) in self._workers:
                self._receive(worker)
        for one in ready:
            if isinstance(one, int) and (worker := by_process[one]) in self._workers:
                while self._receive(worker):
                    pass
                self._ended(worker)
        self._observer.looked(self._workers)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _receive(self, worker: Worker) -> bool:
        """Handle the messages that are there; return whether there was one."""
        received = False
        while worker.channel.connection.poll():
            try:
                message = worker.channel.receive()
            except (EOFError, OSError):
                return False
            received = True
            self._handle(worker, message)
        return received

    def _handle(self, worker: Worker, message: object) -> None:
        match message:
            case Started():
                worker.running = message
            case Reported(data):
                self._report(_report_of(self._session.config, data))
            case Done(place, cpu):
                worker.running = None
                worker.done += 1
                self._observer.done(place, cpu)
            case Hung(text):
                worker.hung = text
            case UnitDone(cpu) if worker.unit is not None:
                seconds = time.monotonic() - worker.since
                self._observer.unit_done(worker.unit, seconds=seconds, cpu=cpu)
                worker.unit = None
                self._give_all()
            case _:
                raise TypeError(f"not of a worker: {message!r}")

    def _give_all(self) -> None:
        """Give a unit to each worker without one; end those that are not needed any more."""
        for worker in self._workers:
            if worker.unit is None:
                self._give(worker)
        if not self._plan.units:
            for worker in self._workers:
                if worker.unit is None:
                    with suppress(OSError):  # it has ended already
                        worker.channel.send(None)

    def _ended(self, worker: Worker) -> None:
        code = worker.end()
        self._workers.remove(worker)
        unit = worker.unit
        if unit is None:
            return
        item = self._session.items[unit.tests[min(worker.done, len(unit.tests) - 1)]]
        how = worker.hung or f"its process ended with {_told(code)}"
        if worker.running is None:
            how = f"between two tests: {how}"
        self._report(_failure(item, how, "call"))
        self._plan.give_back(worker.number, done=worker.done + 1)
        if self._plan.units:
            self._fork()

    def _report(self, report: pytest.TestReport) -> None:
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._observer.reported(report)

    def _interrupt(self) -> None:
        """End all workers, with what they have started.

        Python drops an interrupt that arrives in a finalizer: it is sent until the worker ends.
        """
        for worker in self._workers:
            worker.interrupt()
        until = time.monotonic() + _SECONDS_TO_END
        for worker in self._workers:
            while not wait([worker.pidfd], timeout=_SECONDS_TO_INTERRUPT_AGAIN):
                worker.interrupt()
                with suppress(EOFError, OSError):
                    while worker.channel.connection.poll():
                        worker.channel.receive()  # a full pipe would keep it from ending
                if time.monotonic() > until:
                    os.kill(worker.pid, signal.SIGKILL)
            worker.end()


def _told(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


def _failure(item: pytest.Item, text: str, when: Literal["call", "teardown"]) -> pytest.TestReport:
    """Return the report of what pytest itself could not see."""
    return pytest.TestReport(
        item.nodeid, item.location, {}, "failed", text, when, duration=0.0, start=0.0, stop=0.0
    )


def _report_of(config: pytest.Config, data: dict[str, Any]) -> pytest.TestReport:
    return config.hook.pytest_report_from_serializable(config=config, data=data)


def _work(session: pytest.Session, channel: Channel, number: int) -> NoReturn:
    """Be a worker until no unit is left, or the process that forked it is gone."""
    code = 1
    try:
        _become_worker(session, number)
        reporter = _Reporter(session.config, channel)
        session.config.pluginmanager.register(reporter)
        watch = ProgressWatch(lambda text: channel.send_last(Hung(text)))
        watch.start()
        while (unit := channel.receive()) is not None:
            _run(session, channel, reporter, watch, unit)
        code = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_shared(session)
        code = 2
    except Exception:
        channel.send(Hung(f"its worker failed:\n{traceback.format_exc()}"))
        raise
    finally:
        _EXITS._run_exitfuncs()
        os._exit(code)


def _become_worker(session: pytest.Session, number: int) -> None:
    # Only the process that forked it hears Ctrl-C, and interrupts the workers; when that is killed,
    # the kernel interrupts them.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    _EXITS._clear()  # what is to end with the process that forked
    random.seed()
    config: Any = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are those of the process that forked
    capture.start_global_capturing()
    capture.suspend_global_capture(in_=True)
    for name in ("terminalreporter", "terminalprogress", "lfplugin", "nfplugin"):
        config.pluginmanager.unregister(name=name)
    folder = config._tmp_path_factory.getbasetemp() / f"worker-{number}"
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder


class _Reporter:
    """Sends the reports of tests."""

    def __init__(self, config: pytest.Config, channel: Channel) -> None:
        self._config = config
        self._channel = channel

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._channel.send(Reported(data))


def _run(
    session: pytest.Session,
    channel: Channel,
    reporter: _Reporter,
    watch: ProgressWatch,
    unit: Unit,
) -> None:
    patience = SECONDS_AT_ONE_PLACE_ON_A_GROUND if unit.ground else SECONDS_AT_ONE_PLACE
    leavings = Leavings()

    def fail(place: int, text: str) -> None:
        reporter.pytest_runtest_logreport(_failure(session.items[place], text, "teardown"))

    spent = cpu_seconds()
    for place, following in _with_next(unit.tests):
        item = session.items[place]
        nextitem: Any = session if following is None else session.items[following]
        channel.send(Started(place, time.monotonic()))
        with watch.test(patience):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        for text in leavings.after(place):
            fail(place, text)
        before, spent = spent, cpu_seconds()
        channel.send(Done(place, max(0.0, spent - before)))
    if unit.ground is not None:
        try:
            with watch.test(patience):
                _end_shared(session)
        except Exception:  # noqa: BLE001  (the other units still run)
            fail(unit.tests[-1], f"{unit.name} did not end well:\n{traceback.format_exc()}")
    for place, text in leavings.after_all():
        fail(place, text)
    channel.send(UnitDone(max(0.0, cpu_seconds() - spent)))


def _end_shared(session: pytest.Session) -> None:
    """End what the tests of a session share: a ground goes when the last of its tests is over."""
    state: Any = session
    state._setupstate.teardown_exact(None)


def _with_next(places: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    following: list[int | None] = [*places[1:], None]
    yield from zip(places, following, strict=True)
