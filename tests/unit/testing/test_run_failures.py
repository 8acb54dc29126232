"""A failing run ends at once with the reason and the place."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from libs.runtime.tasks import Tasks
from libs.testing import virtual_loop
from libs.testing.errors import (
    Deadlock,
    Livelock,
    NotSimulated,
    TaskFailed,
    TaskLeaked,
    VirtualTimeExceeded,
)
from libs.testing.simulation import Sim, run
from tests.support import in_virtual_time


async def forever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ValueError("broken")


def test_a_deadlock_names_the_waiting_tasks_and_their_lines() -> None:
    async def main(sim: Sim) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.get(), name="reader")
            group.create_task(forever(), name="sleeper")
            await sim.clock.sleep(2)

    with pytest.raises(Deadlock) as caught:
        run(main, seed=1)
    text = str(caught.value)
    assert text.startswith("at 2 s nothing is ready")
    assert "  reader: not started, or inside asyncio only" in text
    assert "  sleeper: forever (test_run_failures.py:" in text
    assert "awaits Event.wait" in text
    assert "  main: test_a_deadlock_names_the_waiting_tasks_and_their_lines.<locals>.main (" in text


def test_virtual_time_has_a_limit() -> None:
    async def main(sim: Sim) -> None:
        while True:
            await sim.clock.sleep(7)

    with pytest.raises(
        VirtualTimeExceeded, match=r"next timer is at 105 s.* limit is 100 s"
    ) as caught:
        run(main, seed=1, limit=100)
    assert "main: test_virtual_time_has_a_limit" in str(caught.value)


def test_a_livelock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_loop, "STEPS_PER_INSTANT", 1_000)

    async def main(sim: Sim) -> None:
        for _ in range(10):  # many steps are no livelock while time advances
            await sim.clock.sleep(1)
            for _ in range(900):
                await asyncio.sleep(0)
        while True:  # the livelock
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="more than 1000 steps at 10 s") as caught:
        run(main, seed=1)
    assert "main: " in str(caught.value)


def test_a_leaked_task_fails_the_run_and_is_cancelled() -> None:
    ended: list[str] = []

    async def leaked() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("leaked")

    async def main(sim: Sim) -> asyncio.Task[None]:
        task = asyncio.create_task(leaked(), name="leaked")
        await asyncio.sleep(1)
        return task

    with pytest.raises(ExceptionGroup) as caught:
        run(main, seed=1)
    (leak,) = caught.value.exceptions
    assert isinstance(leak, TaskLeaked)
    assert "1 tasks outlived the program" in str(leak)
    assert "leaked: " in str(leak)
    assert "awaits sleep" in str(leak)
    assert ended == ["leaked"]


@pytest.mark.parametrize("kept", [True, False])
def test_an_unretrieved_task_failure_fails_the_run(kept: bool) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def main(sim: Sim) -> None:
        task = asyncio.create_task(fail(), name="failing")
        if kept:
            tasks.append(task)
        await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        run(main, seed=1)
    (failure,) = caught.value.exceptions
    assert isinstance(failure, TaskFailed)
    assert "failing" in str(failure)
    assert isinstance(failure.__cause__, ValueError)


def test_a_failing_callback_and_future_fail_the_run() -> None:
    async def main(sim: Sim) -> None:
        def explode() -> None:
            raise ValueError("in a callback")

        sim.loop.call_later(1, explode)
        sim.loop.create_future().set_exception(ValueError("in a future"))
        await asyncio.sleep(2)

    with pytest.raises(ExceptionGroup) as caught:
        run(main, seed=1)
    causes = sorted(str(failure.__cause__) for failure in caught.value.exceptions)
    assert causes == ["in a callback", "in a future"]


def test_a_pending_task_without_a_reference_fails_the_run() -> None:
    async def main(sim: Sim) -> None:
        async def wait_forever() -> None:
            await sim.loop.create_future()

        asyncio.create_task(wait_forever(), name="lost")  # noqa: RUF006  # no reference is the point
        await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        run(main, seed=1)
    assert "lost" in str(caught.value.exceptions[0])


def test_the_error_of_the_program_comes_first_with_the_others_as_notes() -> None:
    async def main(sim: Sim) -> None:
        beside = asyncio.create_task(fail(), name="beside")
        left = asyncio.create_task(forever(), name="left")
        await asyncio.sleep(1)
        raise KeyError(beside.get_name(), left.get_name())

    with pytest.raises(KeyError) as caught:
        run(main, seed=1)
    (note,) = caught.value.__notes__
    assert "beside" in note
    assert "ValueError('broken')" in note


REACHES_OUT: dict[str, Callable[[asyncio.AbstractEventLoop], Any]] = {
    "run_in_executor": lambda loop: asyncio.to_thread(print),
    r"create_connection\('host', 4222\)": lambda loop: asyncio.open_connection("host", 4222),
    r"subprocess_exec\('true'": lambda loop: asyncio.create_subprocess_exec("true"),
    r"add_signal_handler\(15\)": lambda loop: loop.add_signal_handler(15, print),
    "set_task_factory": lambda loop: loop.set_task_factory(None),
}


@pytest.mark.parametrize("named", REACHES_OUT)
@in_virtual_time
async def test_calls_that_leave_the_simulation_are_refused(sim: Sim, named: str) -> None:
    with pytest.raises(NotSimulated, match=rf"loop\.{named}.* was tried in virtual time; "):
        await REACHES_OUT[named](sim.loop)


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_ends_the_test_from_outside_is_no_failure_of_the_task_in_which_it_strikes(
    error: type[BaseException],
) -> None:
    judged: list[object] = []

    async def strike() -> None:
        await asyncio.sleep(1)
        raise error("from outside")

    async def main(sim: Sim) -> None:
        tasks = Tasks("service", failed=judged.append)
        tasks.forever("work", strike())
        try:
            await sim.clock.sleep(5)
            raise AssertionError(f"the run went on and judged {judged}")
        finally:
            await tasks.close()

    with pytest.raises(error, match="from outside"):
        run(main, seed=1)
