"""How a term is kept: renewed while that goes, and its body cut off when it does not.

A renewal that hangs does not hold up the deadline, for that is watched by another task. An error
that nobody thought of ends the term too: nobody must lead whose renewals have died.
"""

import asyncio
from collections.abc import Awaitable, Callable

from libs.kube import views
from libs.kube.errors import Conflict, KubeError, NotFound
from libs.kube.lease.record import LeaseRecord
from libs.kube.lease.term import REQUEST_TIMEOUT, TERM_SECONDS, Term
from libs.runtime.backoff import jittered
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.tasks import attempt

RENEW_INTERVAL = 2.5
"""It is renewed so often."""
RETRY_INTERVAL = 0.5
"""And so soon again after a failure."""

_HOPELESS = 0.1
"""With less than that left, no answer comes in time."""


class LeaseLost(Exception):
    """The record names another, or nobody."""


class LeaseRenewer:
    """Keeps one term."""

    def __init__(
        self,
        record: LeaseRecord,
        term: Term,
        version: str,
        *,
        env: Env,
    ) -> None:
        self.version = version
        """Of the record as we wrote it last; empty where that is not certain."""
        self.cut = False
        """Whether the body was cancelled from here."""
        self._record = record
        self._term = term
        self._clock = env.clock
        self._random = env.random
        self._trouble = ""
        # When the renewals of which nothing is known were sent, by the time that they bear.
        self._unanswered: dict[str, float] = {}

    def start(self, owner: asyncio.Task[object]) -> list[asyncio.Task[None]]:
        """Two tasks, which end by themselves only after they have cut the owner off."""

        def cut(why: str) -> None:
            if not self._term.end_reason:
                self.cut = True
                self._term.end(why)
                owner.cancel()

        title = self._record.title
        return [
            asyncio.create_task(self._renewals(cut), name=f"{title}/renewals"),
            asyncio.create_task(self._deadline(cut), name=f"{title}/deadline"),
        ]

    async def _renewals(self, cut: Callable[[str], None]) -> None:
        pause = jittered(RENEW_INTERVAL, self._random)
        while True:
            await self._clock.sleep(pause)
            sure = bool(self.version)
            error = await attempt(self._renew())
            match error:
                case None:
                    self._trouble = ""
                    pause = jittered(RENEW_INTERVAL, self._random)
                case LeaseLost():
                    return cut(str(error))
                case Conflict() | NotFound() if sure:
                    pause = 0.0  # the record is not what we thought: look at once
                case KubeError():
                    self._trouble = f": {error}"
                    pause = jittered(RETRY_INTERVAL, self._random)
                case _:
                    return cut(
                        f"the renewals of {self._record.title} broke: {describe_error(error)}"
                    )

    async def _deadline(self, cut: Callable[[str], None]) -> None:
        while left := self._term.remaining():
            await self._clock.sleep(left)
        cut(f"{self._record.title} was not renewed for {TERM_SECONDS:g} s{self._trouble}")

    async def _renew(self) -> None:
        if self._within() < _HOPELESS:
            return
        if not self.version:
            there = await self._record.read(within=self._within())
            if there is None:
                await self._written(self._restore)
                return
            self._recognize(there)
        await self._written(self._prolong)

    def _recognize(self, there: views.Lease) -> None:
        holder = there.spec.holder_identity
        if holder != self._record.holder:
            raise LeaseLost(f"{self._record.title} is held by {holder or 'nobody'} now")
        self.version = there.metadata.resource_version
        sent = self._unanswered.get(there.spec.renew_time or "")
        if sent is not None:
            self._term.renew(sent)

    async def _written(self, write: Callable[[str, str], Awaitable[views.Lease]]) -> None:
        version, self.version = self.version, ""
        stamp, sent = self._record.now(), self._clock.monotonic()
        # Should two bear one time, because the wall clock was set back, the earlier one counts.
        self._unanswered.setdefault(stamp, sent)
        ours = await write(version, stamp)
        self.version = ours.metadata.resource_version
        self._unanswered.clear()
        self._term.renew(sent)

    def _prolong(self, version: str, stamp: str) -> Awaitable[views.Lease]:
        return self._record.renew(version=version, stamp=stamp, within=self._within())

    def _restore(self, _version: str, stamp: str) -> Awaitable[views.Lease]:
        transitions = self._term.transitions
        return self._record.restore(transitions=transitions, stamp=stamp, within=self._within())

    def _within(self) -> float:
        return min(REQUEST_TIMEOUT, self._term.remaining())
