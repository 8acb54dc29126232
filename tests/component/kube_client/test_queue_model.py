"""The work queue against its specification, in virtual time: whatever is done to it, in any order.

Between two steps everything that needs no time happens. Delays are multiples of 1/64 s, so that
no two ways to compute one instant differ.
"""

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from libs.kube.queue import QueueClosed, Urgency, WorkQueue
from libs.testing.simulation import VirtualClock
from libs.testing.virtual_loop import VirtualLoop
from tests.unit.kube.queue_model import QueueModel

if TYPE_CHECKING:
    import asyncio

KEYS = st.sampled_from("abcdefghijkl")
FEW = st.sampled_from("ab")
"""Delays are about what befalls one key several times."""
URGENCIES = st.sampled_from(Urgency)
SECONDS = st.integers(0, 4 * 64).map(lambda ticks: ticks / 64)


class QueueMachine(RuleBasedStateMachine):
    """The queue and the model are told the same, and must then hand out and say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop(limit=float("inf"))
        self.clock = VirtualClock(self.loop, start=0.0)
        self.queue: WorkQueue[str] = WorkQueue(clock=self.clock)
        self.model = QueueModel()
        self.takers: list[asyncio.Task[None]] = []
        self.handed: list[str] = []
        self.ended = 0

    def at_once(self) -> None:
        self.model.take_ready()
        self.loop.finish_instant()

    async def take(self) -> None:
        try:
            self.handed.append(await self.queue.get())
        except QueueClosed:
            self.ended += 1

    def call_queue(self, call: str, *args: object) -> object:
        """Call the queue on its loop, where it may start what sleeps."""

        async def told() -> object:
            return getattr(self.queue, call)(*args)

        return self.loop.run_until_complete(told())

    @initialize(keys=st.lists(st.tuples(KEYS, URGENCIES), max_size=30))
    def start(self, keys: list[tuple[str, Urgency]]) -> None:
        for key, urgency in keys:
            self.add(key, urgency)

    @rule(key=KEYS, urgency=URGENCIES)
    def add(self, key: str, urgency: Urgency) -> None:
        self.model.add(key, urgency)
        self.call_queue("add", key, urgency)

    @rule(key=FEW, seconds=SECONDS, urgency=URGENCIES)
    def add_after(self, key: str, seconds: float, urgency: Urgency) -> None:
        self.model.add_after(key, seconds, urgency)
        self.call_queue("add_after", key, seconds, urgency)

    @rule(key=FEW, at_least=st.sampled_from([0.0, 1.0]))
    def retry(self, key: str, at_least: float) -> None:
        wanted = self.model.retry(key, at_least)

        async def told() -> float:
            return self.queue.retry(key, at_least=at_least)

        assert self.loop.run_until_complete(told()) == wanted

    @rule(key=FEW, times=st.integers(1, 300))
    def fail_often(self, key: str, times: int) -> None:
        """Enough to use up the burst."""

        async def told() -> None:
            for _ in range(times):
                assert self.queue.retry(key) == self.model.retry(key, 0.0)

        self.loop.run_until_complete(told())

    @rule(key=FEW)
    def forget(self, key: str) -> None:
        self.model.forget(key)
        self.call_queue("forget", key)

    @rule(many=st.integers(1, 4))
    @precondition(lambda self: not self.model.closed)
    def ask(self, many: int) -> None:
        for _ in range(many):
            self.model.takers += 1
            self.takers.append(self.loop.create_task(self.take()))

    @rule(rounds=st.integers(1, 20), urgency=URGENCIES)
    @precondition(lambda self: self.model.waiting)
    def busy_keys(self, rounds: int, urgency: Urgency) -> None:
        """What is handed out changes while it is worked on, round after round."""
        for _ in range(rounds):
            self.ask(1)
            self.at_once()
            key = self.model.handed[-1]
            self.add(key, Urgency.RESYNC)
            self.add(key, urgency)
            self.model.done(key)
            self.call_queue("done", key)

    @rule(data=st.data())
    @precondition(lambda self: any(not taker.done() for taker in self.takers))
    def give_up(self, data: st.DataObject) -> None:
        waiting = [taker for taker in self.takers if not taker.done()]
        data.draw(st.sampled_from(waiting)).cancel()
        self.model.takers -= 1

    @rule(data=st.data())
    @precondition(lambda self: any(not taker.done() for taker in self.takers))
    def give_up_as_it_comes(self, data: st.DataObject) -> None:
        """Woken and cancelled at once: the key must not be lost with him."""
        waiting = [taker for taker in self.takers if not taker.done()]

        async def told() -> None:
            self.queue.add("late")
            waiting[0].cancel()

        self.model.takers -= 1
        self.model.add("late", Urgency.LIVE)
        self.loop.run_until_complete(told())

    @rule(data=st.data())
    @precondition(lambda self: self.model.working)
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.working)))
        self.model.done(key)
        self.call_queue("done", key)

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.model.advance_to(self.model.now + seconds)
        self.loop.run_until_complete(self.clock.sleep(seconds))

    @rule(sure=st.integers(0, 9))
    @precondition(lambda self: not self.model.closed)
    def close(self, sure: int) -> None:
        """Seldom, for little happens afterwards."""
        if sure == 9:
            self.end()

    def end(self) -> None:
        ending = self.ended + self.model.takers
        self.model.close()
        self.call_queue("close")
        self.loop.finish_instant()
        assert self.ended == ending

    @invariant()
    def agree(self) -> None:
        self.at_once()
        assert self.handed == self.model.handed
        assert self.queue.stats() == self.model.stats()

    def teardown(self) -> None:
        self.queue.close()
        self.loop.finish_instant()
        assert not self.loop.pending()
        self.loop.close()


def test_the_queue_equals_its_model() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=150, stateful_step_count=60, deadline=None)
    )
