"""What the work queue promises, as plainly as it can be said, at no matter what cost."""

import msgspec

from libs.kube.queue import (
    FAIR_TURN,
    RETRY_BURST,
    RETRY_CAP,
    RETRY_FIRST,
    RETRY_RATE,
    QueueStats,
    Urgency,
)


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
    """One list for each thing; time is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting: list[WaitingKey] = []
        """In the order in which they joined their line."""
        self.delayed: list[DelayedKey] = []
        self.working: dict[str, Urgency] = {}
        self.again: dict[str, Urgency] = {}
        self.tries: dict[str, int] = {}
        self.takers = 0
        self.handed: list[str] = []
        """What those who waited were given, in order, since somebody looked."""
        self.turn = 0
        self.tokens = RETRY_BURST
        self.tokens_at = 0.0
        self.added = 0
        self.retried = 0
        self.closed = False
        self._orders = 0

    def add(self, key: str, urgency: Urgency) -> None:
        for place in self.waiting:
            if place.key == key:
                if urgency < place.urgency:
                    self.waiting.remove(place)
                    self.waiting.append(WaitingKey(key, urgency, place.since))
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
        self.takers = 0
        self.waiting.clear()
        self.delayed.clear()
        self.again.clear()

    def take_ready(self) -> None:
        """To those who wait, as long as there is something."""
        while self.takers and self.waiting:
            self.takers -= 1
            self.turn = (self.turn + 1) % FAIR_TURN
            heads = [
                next(place for place in self.waiting if place.urgency is urgency)
                for urgency in Urgency
                if any(place.urgency is urgency for place in self.waiting)
            ]
            chosen = heads[0] if self.turn else min(heads, key=lambda place: place.since)
            self.waiting.remove(chosen)
            self.working[chosen.key] = chosen.urgency
            self.handed.append(chosen.key)

    def advance_to(self, now: float) -> None:
        """What is due meanwhile joins its line when it is due."""
        while due := sorted(entry.due for entry in self.delayed if entry.due <= now):
            self.now = due[0]
            ripe = sorted(
                (entry for entry in self.delayed if entry.due == due[0]),
                key=lambda entry: entry.order,
            )
            for entry in ripe:
                self.delayed.remove(entry)
                self.add(entry.key, entry.urgency)
            self.take_ready()
        self.now = now

    def stats(self) -> QueueStats:
        return QueueStats(
            waiting=len(self.waiting),
            delayed=len(self.delayed),
            working=len(self.working),
            oldest=self.now - min((place.since for place in self.waiting), default=self.now),
            added=self.added,
            retried=self.retried,
        )

    def _order(self) -> int:
        self._orders += 1
        return self._orders
