"""The work queue against a model of it, in virtual time, with calls in any order.

Delays are multiples of 1/64 s, so that all ways to compute a time agree exactly.
"""

from typing import TYPE_CHECKING

import msgspec
import pytest
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

from libs.kube.queue import (
    FAIR_TURN,
    RETRY_BURST,
    RETRY_CAP,
    RETRY_FIRST,
    RETRY_RATE,
    QueueClosed,
    QueueStats,
    Urgency,
    WorkQueue,
)
from libs.testing.simulation import VirtualClock
from libs.testing.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    import asyncio

KEYS = st.sampled_from("abcdefghijkl")
FEW = st.sampled_from("ab")
"""Few keys, so that a key has several delays."""
URGENCIES = st.sampled_from(Urgency)
SECONDS = st.integers(0, 4 * 64).map(lambda ticks: ticks / 64)


class WaitingKey(msgspec.Struct):
    key: str
    urgency: Urgency
    since: float


class DelayedKey(msgspec.Struct):
    key: str
    urgency: Urgency
    due: float
    order: int


class QueueModel:
    """A model of the queue with plain lists, without regard to cost; the caller sets the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[WaitingKey] = []
        """The waiting keys, in the order in which they were queued."""
        self.delayed: list[DelayedKey] = []
        self.working: dict[str, Urgency] = {}
        self.again: dict[str, Urgency] = {}
        self.tries: dict[str, int] = {}
        self.getters = 0
        self.handed: list[str] = []
        """The keys handed out, in order."""
        self.turn = 0
        self.tokens = RETRY_BURST
        self.tokens_at = 0.0
        self.added = 0
        self.retried = 0
        self.closed = False
        self._orders = 0

    def add(self, key: str, urgency: Urgency) -> None:
        for entry in self.waiting:
            if entry.key == key:
                if urgency < entry.urgency:
                    self.waiting.remove(entry)
                    self.waiting.append(WaitingKey(key, urgency, entry.since))
                return
        if key in self.working:
            self.again[key] = min(urgency, self.again.get(key, urgency))
        elif not self.closed:
            self.waiting.append(WaitingKey(key, urgency, self.now))
            self.added += 1

    def add_after(self, key: str, seconds: float, urgency: Urgency) -> None:
        if self.closed:
            return
        if seconds <= 0:
            self.add(key, urgency)
            return
        due = self.now + seconds
        for entry in self.delayed:
            if entry.key == key:
                entry.urgency = min(urgency, entry.urgency)
                if due < entry.due:
                    entry.due, entry.order = due, self._order()
                return
        self.delayed.append(DelayedKey(key, urgency, due, self._order()))

    def retry(self, key: str, at_least: float) -> float:
        tries = self.tries.get(key, 0)
        self.tries[key] = tries + 1
        self.retried += 1
        grown = self.tokens + (self.now - self.tokens_at) * RETRY_RATE
        self.tokens, self.tokens_at = min(RETRY_BURST, grown) - 1.0, self.now
        overdrawn = max(0.0, -self.tokens / RETRY_RATE)
        seconds = max(min(RETRY_CAP, RETRY_FIRST * 2.0 ** min(tries, 20)), overdrawn, at_least)
        self.add_after(key, seconds, self.working.get(key, Urgency.LIVE))
        return seconds

    def forget(self, key: str) -> None:
        self.tries.pop(key, None)

    def done(self, key: str) -> None:
        del self.working[key]
        if key in self.again:
            self.add(key, self.again.pop(key))

    def close(self) -> None:
        self.closed = True
        self.getters = 0
        self.waiting.clear()
        self.delayed.clear()
        self.again.clear()

    def take_ready(self) -> None:
        """Hand out waiting keys to the getters."""
        while self.getters and self.waiting:
            self.getters -= 1
            self.turn = (self.turn + 1) % FAIR_TURN
            heads = [
                next(entry for entry in self.waiting if entry.urgency is urgency)
                for urgency in Urgency
                if any(entry.urgency is urgency for entry in self.waiting)
            ]
            chosen = heads[0] if self.turn else min(heads, key=lambda entry: entry.since)
            self.waiting.remove(chosen)
            self.working[chosen.key] = chosen.urgency
            self.handed.append(chosen.key)

    def advance_to(self, now: float) -> None:
        """Queue each delayed key when it is due."""
        while due := sorted(entry.due for entry in self.delayed if entry.due <= now):
            self.now = due[0]
            due_entries = sorted(
                (entry for entry in self.delayed if entry.due == due[0]),
                key=lambda entry: entry.order,
            )
            for entry in due_entries:
                self.delayed.remove(entry)
                self.add(entry.key, entry.urgency)
            self.take_ready()
        self.now = now

    def stats(self) -> QueueStats:
        return QueueStats(
            waiting=len(self.waiting),
            delayed=len(self.delayed),
            working=len(self.working),
            oldest=self.now - min((entry.since for entry in self.waiting), default=self.now),
            added=self.added,
            retried=self.retried,
        )

    def _order(self) -> int:
        self._orders += 1
        return self._orders


class QueueMachine(RuleBasedStateMachine):
    """Calls the queue and the model alike, and compares keys and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop(limit=float("inf"))
        self.clock = VirtualClock(self.loop, start=0.0)
        self.queue: WorkQueue[str] = WorkQueue(clock=self.clock)
        self.model = QueueModel()
        self.getters: list[asyncio.Task[None]] = []
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
        """Call the queue on its loop, where it may start a task."""

        async def call_it() -> object:
            return getattr(self.queue, call)(*args)

        return self.loop.run_until_complete(call_it())

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

        async def call_it() -> float:
            return self.queue.retry(key, at_least=at_least)

        assert self.loop.run_until_complete(call_it()) == wanted

    @rule(key=FEW, times=st.integers(1, 300))
    def fail_often(self, key: str, times: int) -> None:
        """Use up the burst."""

        async def call_it() -> None:
            for _ in range(times):
                assert self.queue.retry(key) == self.model.retry(key, 0.0)

        self.loop.run_until_complete(call_it())

    @rule(key=FEW)
    def forget(self, key: str) -> None:
        self.model.forget(key)
        self.call_queue("forget", key)

    @rule(many=st.integers(1, 4))
    @precondition(lambda self: not self.model.closed)
    def get(self, many: int) -> None:
        for _ in range(many):
            self.model.getters += 1
            self.getters.append(self.loop.create_task(self.take()))

    @rule(rounds=st.integers(1, 20), urgency=URGENCIES)
    @precondition(lambda self: self.model.waiting)
    def busy_keys(self, rounds: int, urgency: Urgency) -> None:
        """Add each key again while it is processed."""
        for _ in range(rounds):
            self.get(1)
            self.at_once()
            key = self.model.handed[-1]
            self.add(key, Urgency.RESYNC)
            self.add(key, urgency)
            self.model.done(key)
            self.call_queue("done", key)

    @rule(data=st.data())
    @precondition(lambda self: any(not getter.done() for getter in self.getters))
    def cancel_a_getter(self, data: st.DataObject) -> None:
        waiting = [getter for getter in self.getters if not getter.done()]
        data.draw(st.sampled_from(waiting)).cancel()
        self.model.getters -= 1

    @rule(data=st.data())
    @precondition(lambda self: any(not getter.done() for getter in self.getters))
    def cancel_a_woken_getter(self, data: st.DataObject) -> None:
        """Cancel a getter right after it was woken: the key must not be lost."""
        waiting = [getter for getter in self.getters if not getter.done()]

        async def call_it() -> None:
            self.queue.add("late")
            waiting[0].cancel()

        self.model.getters -= 1
        self.model.add("late", Urgency.LIVE)
        self.loop.run_until_complete(call_it())

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
        """Close rarely, because a closed queue does little."""
        if sure == 9:
            self.end()

    def end(self) -> None:
        ending = self.ended + self.model.getters
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


@pytest.mark.dear("eighty histories of sixty steps, each compared with the model after every step")
def test_the_queue_equals_its_model() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=80, stateful_step_count=60, deadline=None)
    )
