"""Phases of a service, and the order of its stop, also where steps hang or fail."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from libs.runtime.clock import Clock
from libs.runtime.service import CLOSE_SECONDS, Service, ServicePhase
from tests.unit.runtime.builders import record_step, resource, run_forever, stop_at
from tests.unit.runtime.virtual_time import in_virtual_time


@in_virtual_time(takes=60)
async def test_a_service_passes_through_its_phases(service: Service, journal: list[str]) -> None:
    async with service:
        assert service.unready_reasons() == ["driver: starting"]
        assert await service.enter("bus", resource("bus", journal)) == "bus"
        stop_at(service, 60)
        asyncio.get_running_loop().call_later(30, lambda: journal.extend(service.unready_reasons()))
        asyncio.get_running_loop().call_later(30, journal.append, f"{service.phase} at 30")
    assert journal == [
        ServicePhase.STARTING,
        "open bus",
        ServicePhase.READY,
        "starting at 30",
        ServicePhase.DRAINING,
        "close bus",
        ServicePhase.STOPPED,
    ]
    assert service.unready_reasons() == ["driver: stopped"]


@in_virtual_time(takes=11)
async def test_a_stop_closes_intakes_then_tasks_then_resources(
    service: Service, journal: list[str]
) -> None:
    async def in_flight() -> None:
        await asyncio.sleep(10)
        journal.append("in flight done")

    async def intake() -> None:
        journal.append(f"intake closed, {service.unready_reasons()}")
        # The last message is still work in flight.
        service.run("last message", in_flight())

    async with service:
        await service.enter("bus", resource("bus", journal))
        await service.enter("cache", resource("cache", journal))
        service.on_drain("messages", intake)
        service.on_drain("watches", record_step(journal, "watches closed"))
        service.run_forever("worker", run_forever(journal, "worker"))
        service.run("message", in_flight())
        stop_at(service, 1)
    assert journal == [
        ServicePhase.STARTING,
        "open bus",
        "open cache",
        ServicePhase.READY,
        ServicePhase.DRAINING,
        "intake closed, ['driver: draining']",
        "watches closed",
        "end worker",
        "in flight done",
        "in flight done",
        "close cache",
        "close bus",
        ServicePhase.STOPPED,
    ]


@in_virtual_time(takes=26)
async def test_the_drain_deadline_cancels_work_that_hangs(
    service: Service, journal: list[str]
) -> None:
    with capture_logs() as logs:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.run("message", run_forever(journal, "message"))
            stop_at(service, 1)
    assert journal[-4:] == [ServicePhase.DRAINING, "end message", "close bus", ServicePhase.STOPPED]
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning == {
        "event": "stop step failed",
        "log_level": "warning",
        "step": "finish work in flight",
        "error": "TimeoutError: not done after 25 s",
        "running": ["message"],
    }


@in_virtual_time(takes=25)
async def test_an_intake_that_hangs_or_fails_does_not_block_the_stop(
    service: Service, journal: list[str]
) -> None:
    async def failing() -> None:
        raise ConnectionError("away")

    with capture_logs() as logs:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.on_drain("failing", failing)
            service.on_drain("hanging", lambda: run_forever(journal, "hanging"))
            service.run_forever("worker", run_forever(journal, "worker"))
            service.stop("SIGTERM")
    assert journal[-5:] == [
        ServicePhase.DRAINING,
        "end hanging",
        "end worker",
        "close bus",
        ServicePhase.STOPPED,
    ]
    assert [entry["step"] for entry in logs if entry["log_level"] == "warning"] == [
        "close intake failing",
        "close intake hanging",
    ]


@in_virtual_time(takes=CLOSE_SECONDS)
async def test_a_resource_that_hangs_or_fails_at_its_close_is_a_warning(
    service: Service, journal: list[str]
) -> None:
    @asynccontextmanager
    async def hanging() -> AsyncGenerator[None]:
        yield
        await run_forever(journal, "hanging")

    @asynccontextmanager
    async def failing() -> AsyncGenerator[None]:
        yield
        raise ConnectionError("the server is away")

    with capture_logs() as logs:
        async with service:
            await service.enter("bus", resource("bus", journal))
            await service.enter("hanging", hanging())
            await service.enter("failing", failing())
            service.stop("SIGTERM")
    assert journal[-4:] == [ServicePhase.DRAINING, "end hanging", "close bus", ServicePhase.STOPPED]
    warnings = [(e["step"], e["error"]) for e in logs if e["log_level"] == "warning"]
    assert warnings == [
        ("close failing", "ConnectionError: the server is away"),
        ("close hanging", "TimeoutError: not done after 3 s"),
    ]


@in_virtual_time()
async def test_a_resource_is_closed_by_the_task_that_opened_it(service: Service) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @asynccontextmanager
    async def group() -> AsyncGenerator[None]:
        async with asyncio.TaskGroup():
            tasks.append(asyncio.current_task())
            yield
            tasks.append(asyncio.current_task())

    async with service:
        await service.enter("group", group())
        stop_at(service, 1)
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


@in_virtual_time()
async def test_a_stopped_service_starts_no_tasks(service: Service) -> None:
    async with service:
        service.stop("SIGTERM")
    with pytest.raises(RuntimeError, match="driver is stopping and cannot start late"):
        service.run_forever("late", run_forever())
    with pytest.raises(RuntimeError, match="driver is stopping and cannot start late"):
        service.run("late", run_forever())


@in_virtual_time()
async def test_failing_readiness_checks_are_listed_with_their_reasons(service: Service) -> None:
    reason: list[str | None] = ["not connected to nats://bus:4222"]

    def ready() -> None:
        assert service.unready_reasons() == ["driver: bus: not connected to nats://bus:4222"]
        reason[0] = None
        assert service.unready_reasons() == []
        service.stop("SIGTERM")

    async with service:
        service.ready_when("bus", lambda: reason[0])
        service.ready_when("cache", lambda: None)
        assert service.unready_reasons() == [
            "driver: starting",
            "driver: bus: not connected to nats://bus:4222",
        ]
        asyncio.get_running_loop().call_later(1, ready)


@in_virtual_time(takes=6)
async def test_services_in_one_loop_log_under_their_own_names(clock: Clock) -> None:
    async def record_name() -> None:
        names.append(str(structlog.contextvars.get_contextvars()["service"]))

    async def run_service(service: Service) -> None:
        async with service:
            service.run("record", record_name())

    names: list[str] = []

    services = [Service(name, clock=clock) for name in ("driver", "telemetry")]
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(run_service(service))
        await asyncio.sleep(3)
        services[0].stop("alone")
        await asyncio.sleep(3)
        assert [service.phase for service in services] == [
            ServicePhase.STOPPED,
            ServicePhase.READY,
        ]
        services[1].stop("too")
    assert structlog.contextvars.get_contextvars() == {}
    assert names == ["driver", "telemetry"]
