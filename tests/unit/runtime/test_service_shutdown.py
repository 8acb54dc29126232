"""Failures, early stops and cancellation of a service."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from libs.runtime.service import Service, ServicePhase
from tests.unit.runtime.builders import crash, failure, record_step, resource, run_forever, stop_at
from tests.unit.runtime.virtual_time import Virtual


def test_a_crashed_worker_fails_the_service_after_an_orderly_stop(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def start() -> None:
        await service.enter("bus", resource("bus", journal))
        service.on_drain("messages", record_step(journal, "messages closed"))
        service.run_forever("upgrade", crash())

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: upgrade failed: ConnectionError: the server hung up"
        )

    assert virtual(story()) == 5
    assert journal[-4:] == [
        ServicePhase.DRAINING,
        "messages closed",
        "close bus",
        ServicePhase.STOPPED,
    ]


def test_a_worker_that_returns_has_failed(virtual: Virtual, service: Service):
    async def start() -> None:
        service.run_forever("upgrade", asyncio.sleep(5))

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: upgrade returned, but must run until it is stopped"
        )

    assert virtual(story()) == 5


def test_a_worker_cancelled_from_outside_has_failed(virtual: Virtual, service: Service):
    async def start() -> None:
        service.run_forever("upgrade", run_forever())
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "driver/upgrade"]
        task.cancel()

    async def story() -> None:
        assert await failure(service, start) == "driver: upgrade was cancelled unexpectedly"

    assert virtual(story()) == 0


def test_a_finite_task_may_end_but_its_error_fails_the_service(virtual: Virtual, service: Service):
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


def test_a_failure_after_a_stop_is_ignored(virtual: Virtual, service: Service):
    async def story() -> None:
        async with service:
            service.on_drain("bus", closing)
            service.stop("SIGTERM")

    async def closing() -> None:
        service.fail("connection closed")

    virtual(story())
    assert service.failure is None


def test_a_stop_interrupts_the_start(virtual: Virtual, service: Service, journal: list[str]):
    @asynccontextmanager
    async def never() -> AsyncGenerator[None]:
        await asyncio.Event().wait()
        yield

    async def story() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            stop_at(service, 7)
            later = asyncio.get_running_loop().call_later
            later(6, lambda: journal.extend(service.unready_reasons()))
            await service.enter("cache", never())
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0

    assert virtual(story()) == 7
    assert journal == [
        ServicePhase.STARTING,
        "open bus",
        "driver: starting (opening cache)",
        ServicePhase.DRAINING,
        "close bus",
        ServicePhase.STOPPED,
    ]


def test_an_error_raised_by_an_interrupted_start_is_ignored(virtual: Virtual, service: Service):
    async def story() -> None:
        async with service:
            stop_at(service, 7)
            try:
                await asyncio.Event().wait()
            finally:
                raise ConnectionError("interrupted")  # what libraries make of a cancellation

    assert virtual(story()) == 7
    assert service.failure is None


def test_a_stop_before_the_start_takes_effect_at_the_start(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def story() -> None:
        service.stop("SIGTERM")
        async with service:
            await asyncio.Event().wait()

    assert virtual(story()) == 0
    assert journal == [ServicePhase.STARTING, ServicePhase.DRAINING, ServicePhase.STOPPED]


def test_a_crashed_worker_interrupts_the_start(virtual: Virtual, service: Service):
    async def start() -> None:
        service.run_forever("upgrade", crash())
        await asyncio.Event().wait()

    async def story() -> None:
        assert await failure(service, start) == (
            "driver: upgrade failed: ConnectionError: the server hung up"
        )

    assert virtual(story()) == 5


def test_a_failed_start_names_the_resource_being_opened(
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
    assert journal[-2:] == ["close bus", ServicePhase.STOPPED]


def test_cancelling_the_task_skips_draining_but_closes_resources(
    virtual: Virtual, service: Service, journal: list[str]
):
    async def life() -> None:
        async with service:
            await service.enter("bus", resource("bus", journal))
            service.on_drain("messages", record_step(journal, "never"))
            service.run_forever("worker", run_forever(journal, "worker"))
            service.run("message", run_forever(journal, "message"))

    async def story() -> None:
        task = asyncio.create_task(life())
        await asyncio.sleep(1)
        assert service.phase is ServicePhase.READY
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    assert virtual(story()) == 1
    assert journal[2:] == [
        ServicePhase.READY,
        "end message",
        "end worker",
        "close bus",
        ServicePhase.STOPPED,
    ]
