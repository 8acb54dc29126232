"""Failures, early stops and cancellation of a service."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from libs.runtime.service import Service, ServicePhase
from tests.unit.runtime.builders import crash, failure, record_step, resource, run_forever, stop_at
from tests.unit.runtime.virtual_time import in_virtual_time


@in_virtual_time(takes=5)
async def test_a_crashed_worker_fails_the_service_after_an_orderly_stop(
    service: Service, journal: list[str]
) -> None:
    async def start() -> None:
        await service.enter("bus", resource("bus", journal))
        service.on_drain("messages", record_step(journal, "messages closed"))
        service.run_forever("upgrade", crash())

    assert await failure(service, start) == (
        "driver: upgrade failed: ConnectionError: the server hung up"
    )
    assert journal[-4:] == [
        ServicePhase.DRAINING,
        "messages closed",
        "close bus",
        ServicePhase.STOPPED,
    ]


StartTask = Callable[[Service, str, Coroutine[Any, Any, object]], None]
HUNG_UP = "ConnectionError: the server hung up"


async def end_early() -> None:
    await asyncio.sleep(5)


@pytest.mark.parametrize(
    ("start_task", "work", "message"),
    [
        (Service.run_forever, crash, f"failed: {HUNG_UP}"),
        (Service.run_forever, end_early, "returned, but must run until it is stopped"),
        (Service.run, crash, f"failed: {HUNG_UP}"),
    ],
)
@pytest.mark.parametrize("start_ends", [True, False])
@in_virtual_time(takes=5)
async def test_a_task_that_fails_ends_the_service_even_during_its_start(
    service: Service,
    start_task: StartTask,
    work: Callable[[], Coroutine[Any, Any, None]],
    message: str,
    start_ends: bool,
) -> None:
    async def start() -> None:
        service.run("short", asyncio.sleep(1))
        start_task(service, "upgrade", work())
        if not start_ends:
            await asyncio.Event().wait()

    assert await failure(service, start) == f"driver: upgrade {message}"


@in_virtual_time(takes=0)
async def test_a_worker_cancelled_from_outside_has_failed(service: Service) -> None:
    async def start() -> None:
        service.run_forever("upgrade", run_forever())
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "driver/upgrade"]
        task.cancel()

    assert await failure(service, start) == "driver: upgrade was cancelled unexpectedly"


@in_virtual_time()
async def test_the_first_failure_counts(service: Service) -> None:
    async def start() -> None:
        service.fail("the connection closed for good")
        service.fail(ConnectionError("again"))

    with capture_logs() as logs:
        assert await failure(service, start) == "driver: the connection closed for good"
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning["event"] == "failure while stopping"
    assert warning["error"] == "ConnectionError: again"


@in_virtual_time()
async def test_a_failure_after_a_stop_is_ignored(service: Service) -> None:
    async def closing() -> None:
        service.fail("connection closed")

    async with service:
        service.on_drain("bus", closing)
        service.stop("SIGTERM")
    assert service.failure is None


@in_virtual_time(takes=7)
async def test_a_stop_interrupts_the_start(service: Service, journal: list[str]) -> None:
    @asynccontextmanager
    async def never() -> AsyncGenerator[None]:
        await asyncio.Event().wait()
        yield

    async with service:
        await service.enter("bus", resource("bus", journal))
        stop_at(service, 7)
        later = asyncio.get_running_loop().call_later
        later(6, lambda: journal.extend(service.unready_reasons()))
        await service.enter("cache", never())
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
    assert journal == [
        ServicePhase.STARTING,
        "open bus",
        "driver: starting (opening cache)",
        ServicePhase.DRAINING,
        "close bus",
        ServicePhase.STOPPED,
    ]


@in_virtual_time(takes=7)
async def test_an_error_raised_by_an_interrupted_start_is_ignored(service: Service) -> None:
    async with service:
        stop_at(service, 7)
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("interrupted")  # what libraries make of a cancellation
    assert service.failure is None


@in_virtual_time(takes=0)
async def test_a_stop_before_the_start_takes_effect_at_the_start(
    service: Service, journal: list[str]
) -> None:
    service.stop("SIGTERM")
    async with service:
        await asyncio.Event().wait()
    assert journal == [ServicePhase.STARTING, ServicePhase.DRAINING, ServicePhase.STOPPED]


@in_virtual_time()
async def test_a_failed_start_names_the_resource_being_opened(
    service: Service, journal: list[str]
) -> None:
    @asynccontextmanager
    async def refused() -> AsyncGenerator[None]:
        raise ConnectionRefusedError(111, "Connection refused")
        yield

    async def start() -> None:
        await service.enter("bus", resource("bus", journal))
        await service.enter("cache", refused())

    assert await failure(service, start) == (
        "driver: opening cache: ConnectionRefusedError: [Errno 111] Connection refused"
    )
    assert journal[-2:] == ["close bus", ServicePhase.STOPPED]


@in_virtual_time(takes=1)
async def test_cancelling_the_task_skips_draining_but_closes_resources(
    service: Service, journal: list[str]
) -> None:
    async def life() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.on_drain("messages", record_step(journal, "never"))
            service.run_forever("worker", run_forever(journal, "worker"))
            service.run("message", run_forever(journal, "message"))

    task = asyncio.create_task(life())
    await asyncio.sleep(1)
    assert service.phase is ServicePhase.READY
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert journal[2:] == [
        ServicePhase.READY,
        "end message",
        "end worker",
        "close bus",
        ServicePhase.STOPPED,
    ]
