"""Phases of a service, the order in which it stops, and what is a failure and what is not."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from sluice.runtime.clock import Clock
from sluice.runtime.fatal import Fatal
from sluice.runtime.service import CLOSE_SECONDS, Phase, Service
from tests.unit.runtime.virtual import Virtual


@pytest.fixture
def journal() -> list[str]:
    """What happened, in order."""
    return []


@pytest.fixture
def service(clock: Clock, journal: list[str]) -> Service:
    """A service that writes its phases into the journal."""
    return Service("driver", clock=clock, drain_seconds=25, on_phase=journal.append)


@asynccontextmanager
async def resource(name: str, journal: list[str]) -> AsyncGenerator[str]:
    journal.append(f"open {name}")
    yield name
    journal.append(f"close {name}")


def noted(journal: list[str], what: str) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        journal.append(what)

    return step


async def for_ever(journal: list[str] | None = None, name: str = "") -> None:
    try:
        await asyncio.Event().wait()
    finally:
        if journal is not None:
            journal.append(f"end {name}")


async def crash() -> None:
    await asyncio.sleep(5)
    raise ConnectionError("the server\nhung up")


async def failure(service: Service, start: Callable[[], Awaitable[object]]) -> str:
    """How a service fails that starts so."""

    async def life() -> None:
        async with service:
            await start()

    with pytest.raises(Fatal) as caught:
        await life()
    assert caught.value is service.failure
    return str(caught.value)


def stop_at(service: Service, seconds: float) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, service.stop, "SIGTERM")


def test_it_passes_through_its_phases(virtual: Virtual, service: Service, journal: list[str]):
    async def story() -> None:
        async with service:
            assert service.unready() == ["driver: starting"]
            assert await service.enter("bus", resource("bus", journal)) == "bus"
            stop_at(service, 60)
            asyncio.get_running_loop().call_later(30, lambda: journal.extend(service.unready()))
            asyncio.get_running_loop().call_later(30, journal.append, f"{service.phase} at 30")

    assert virtual(story()) == 60
    assert journal == [
        Phase.STARTING,
        "open bus",
        Phase.READY,
        "starting at 30",
        Phase.DRAINING,
        "close bus",
        Phase.STOPPED,
    ]
    assert service.unready() == ["driver: stopped"]


def test_it_stops_in_one_order(virtual: Virtual, service: Service, journal: list[str]):
    async def in_flight() -> None:
        await asyncio.sleep(10)
        journal.append("in flight done")

    async def intake() -> None:
        journal.append(f"intake closed, {service.unready()}")
        # What arrived last is still work in flight.
        service.run("last message", in_flight())

    async def story() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            await service.enter("cache", resource("cache", journal))
            service.on_drain("messages", intake)
            service.on_drain("watches", noted(journal, "watches closed"))
            service.run_forever("worker", for_ever(journal, "worker"))
            service.run("message", in_flight())
            stop_at(service, 1)

    assert virtual(story()) == 11
    assert journal == [
        Phase.STARTING,
        "open bus",
        "open cache",
        Phase.READY,
        Phase.DRAINING,
        "intake closed, ['driver: draining']",
        "watches closed",
        "end worker",
        "in flight done",
        "in flight done",
        "close cache",
        "close bus",
        Phase.STOPPED,
    ]


def test_the_drain_deadline_cancels_work_that_hangs(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def story() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.run("message", for_ever(journal, "message"))
            stop_at(service, 1)

    with capture_logs() as logs:
        assert virtual(story()) == 26
    assert journal[-4:] == [Phase.DRAINING, "end message", "close bus", Phase.STOPPED]
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning == {
        "event": "stop step failed",
        "log_level": "warning",
        "step": "finish work in flight",
        "error": "TimeoutError: not done after 25 s",
        "running": ["message"],
    }


def test_an_intake_that_hangs_or_fails_does_not_keep_the_rest_from_closing(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def failing() -> None:
        raise ConnectionError("away")

    async def story() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.on_drain("failing", failing)
            service.on_drain("hanging", lambda: for_ever(journal, "hanging"))
            service.run_forever("worker", for_ever(journal, "worker"))
            service.stop("SIGTERM")

    with capture_logs() as logs:
        assert virtual(story()) == 25
    assert journal[-5:] == [
        Phase.DRAINING,
        "end hanging",
        "end worker",
        "close bus",
        Phase.STOPPED,
    ]
    assert [entry["step"] for entry in logs if entry["log_level"] == "warning"] == [
        "close intake failing",
        "close intake hanging",
    ]


def test_a_resource_that_hangs_or_fails_at_its_close_is_a_warning(
    virtual: Virtual, service: Service, journal: list[str]
):
    @asynccontextmanager
    async def hanging() -> AsyncGenerator[None]:
        yield
        await for_ever(journal, "hanging")

    @asynccontextmanager
    async def failing() -> AsyncGenerator[None]:
        yield
        raise ConnectionError("the server is away")

    async def story() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            await service.enter("hanging", hanging())
            await service.enter("failing", failing())
            service.stop("SIGTERM")

    with capture_logs() as logs:
        assert virtual(story()) == CLOSE_SECONDS
    assert journal[-4:] == [Phase.DRAINING, "end hanging", "close bus", Phase.STOPPED]
    warnings = [(e["step"], e["error"]) for e in logs if e["log_level"] == "warning"]
    assert warnings == [
        ("close failing", "ConnectionError: the server is away"),
        ("close hanging", "TimeoutError: not done after 3 s"),
    ]


def test_a_worker_that_crashes_fails_the_service_and_the_rest_still_ends_in_order(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def start() -> None:
        await service.enter("bus", resource("bus", journal))
        service.on_drain("messages", noted(journal, "messages closed"))
        service.run_forever("upgrade", crash())

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: upgrade failed: ConnectionError: the server hung up"
        )

    assert virtual(story()) == 5
    assert journal[-4:] == [Phase.DRAINING, "messages closed", "close bus", Phase.STOPPED]


def test_a_worker_that_returns_has_failed(virtual: Virtual, service: Service):
    async def start() -> None:
        service.run_forever("upgrade", asyncio.sleep(5))

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: upgrade returned, but must run until it is stopped"
        )

    assert virtual(story()) == 5


def test_a_worker_that_somebody_else_cancelled_has_failed(virtual: Virtual, service: Service):
    async def start() -> None:
        service.run_forever("upgrade", for_ever())
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "driver/upgrade"]
        task.cancel()

    async def story() -> None:
        assert await failure(service, start) == ("driver: upgrade was cancelled, but not by a stop")

    assert virtual(story()) == 0


def test_work_that_ends_is_fine_and_work_that_raises_fails_the_service(
    virtual: Virtual, service: Service
):
    async def start() -> None:
        service.run("first", asyncio.sleep(1))
        service.run("second", crash())

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: second failed: ConnectionError: the server hung up"
        )

    assert virtual(story()) == 5


def test_the_first_failure_counts(virtual: Virtual, service: Service):
    async def start() -> None:
        service.fail("the connection closed for good")
        service.fail(ConnectionError("again"))

    async def story() -> None:
        assert await failure(service, start) == "driver: the connection closed for good"

    with capture_logs() as logs:
        virtual(story())
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning["event"] == "failure while stopping"
    assert warning["error"] == "ConnectionError: again"


def test_what_fails_after_a_stop_was_asked_for_is_no_failure(virtual: Virtual, service: Service):
    async def story() -> None:
        async with service:
            service.on_drain("bus", closing)
            service.stop("SIGTERM")

    async def closing() -> None:
        service.fail("connection closed")

    virtual(story())
    assert service.failure is None


def test_a_stop_cuts_a_start_short(virtual: Virtual, service: Service, journal: list[str]):
    @asynccontextmanager
    async def never() -> AsyncGenerator[None]:
        await asyncio.Event().wait()
        yield

    async def story() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            stop_at(service, 7)
            later = asyncio.get_running_loop().call_later
            later(6, lambda: journal.extend(service.unready()))
            await service.enter("cache", never())
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0

    assert virtual(story()) == 7
    assert journal == [
        Phase.STARTING,
        "open bus",
        "driver: starting (opening cache)",
        Phase.DRAINING,
        "close bus",
        Phase.STOPPED,
    ]


def test_a_start_that_turns_its_end_into_another_error_was_still_only_stopped(
    virtual: Virtual, service: Service
):
    async def story() -> None:
        async with service:
            stop_at(service, 7)
            try:
                await asyncio.Event().wait()
            finally:
                raise ConnectionError("interrupted")  # what libraries make of a cancellation

    assert virtual(story()) == 7
    assert service.failure is None


def test_a_stop_before_the_start_is_kept(virtual: Virtual, service: Service, journal: list[str]):
    async def story() -> None:
        service.stop("SIGTERM")
        async with service:
            await asyncio.Event().wait()

    assert virtual(story()) == 0
    assert journal == [Phase.STARTING, Phase.DRAINING, Phase.STOPPED]


def test_a_worker_that_crashes_cuts_the_start_short(virtual: Virtual, service: Service):
    async def start() -> None:
        service.run_forever("upgrade", crash())
        await asyncio.Event().wait()

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: upgrade failed: ConnectionError: the server hung up"
        )

    assert virtual(story()) == 5


def test_a_start_that_raises_names_what_was_being_opened(
    virtual: Virtual, service: Service, journal: list[str]
):
    @asynccontextmanager
    async def refused() -> AsyncGenerator[None]:
        raise ConnectionRefusedError(111, "Connection refused")
        yield

    async def start() -> None:
        await service.enter("bus", resource("bus", journal))
        await service.enter("cache", refused())

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: opening cache: ConnectionRefusedError: [Errno 111] Connection refused"
        )

    virtual(story())
    assert journal[-2:] == ["close bus", Phase.STOPPED]


def test_who_cancels_the_task_skips_the_draining_but_leaves_nothing_open(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def life() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.on_drain("messages", noted(journal, "never"))
            service.run_forever("worker", for_ever(journal, "worker"))
            service.run("message", for_ever(journal, "message"))

    async def story() -> None:
        task = asyncio.create_task(life())
        await asyncio.sleep(1)
        assert service.phase is Phase.READY
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    assert virtual(story()) == 1
    assert journal[2:] == [Phase.READY, "end message", "end worker", "close bus", Phase.STOPPED]


def test_a_resource_is_closed_by_the_task_that_opened_it(virtual: Virtual, service: Service):
    tasks: list[asyncio.Task[Any] | None] = []

    @asynccontextmanager
    async def group() -> AsyncGenerator[None]:
        async with asyncio.TaskGroup():
            tasks.append(asyncio.current_task())
            yield
            tasks.append(asyncio.current_task())

    async def story() -> None:
        async with service:
            await service.enter("group", group())
            stop_at(service, 1)

    virtual(story())
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


def test_nothing_is_started_once_it_has_stopped(virtual: Virtual, service: Service):
    async def story() -> None:
        async with service:
            service.stop("SIGTERM")
        with pytest.raises(RuntimeError, match="driver is stopping and cannot start late"):
            service.run_forever("late", for_ever())
        with pytest.raises(RuntimeError, match="driver is stopping and cannot start late"):
            service.run("late", for_ever())

    virtual(story())


def test_readiness_says_why_not_in_words(virtual: Virtual, service: Service):
    why: list[str | None] = ["not connected to nats://bus:4222"]

    async def story() -> None:
        async with service:
            service.ready_when("bus", lambda: why[0])
            service.ready_when("cache", lambda: None)
            assert service.unready() == [
                "driver: starting",
                "driver: bus: not connected to nats://bus:4222",
            ]
            asyncio.get_running_loop().call_later(1, ready)

    def ready() -> None:
        assert service.unready() == ["driver: bus: not connected to nats://bus:4222"]
        why[0] = None
        assert service.unready() == []
        service.stop("SIGTERM")

    virtual(story())


def test_several_services_live_in_one_loop_and_each_logs_under_its_name(
    virtual: Virtual, clock: Clock
):
    async def speak() -> None:
        names.append(str(structlog.contextvars.get_contextvars()["service"]))

    async def life(one: Service) -> None:
        async with one:
            one.run("word", speak())

    async def story() -> None:
        services = [Service(name, clock=clock) for name in ("driver", "telemetry")]
        async with asyncio.TaskGroup() as group:
            for one in services:
                group.create_task(life(one))
            await asyncio.sleep(3)
            services[0].stop("alone")
            await asyncio.sleep(3)
            assert [one.phase for one in services] == [Phase.STOPPED, Phase.READY]
            services[1].stop("too")
        assert structlog.contextvars.get_contextvars() == {}

    names: list[str] = []
    assert virtual(story()) == 6
    assert names == ["driver", "telemetry"]
