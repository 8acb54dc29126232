"""Renew a term, and cancel its body when the term ends.

A separate task watches the deadline, so a hanging renewal does not delay it. An unexpected error
ends the term too, because nothing would renew it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from libs.kube import views
from libs.kube.errors import Conflict, KubeError, NotFound
from libs.kube.lease.record import LeaseRecord
from libs.kube.lease.term import REQUEST_TIMEOUT, TERM_SECONDS, Term
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from libs.runtime.fatal import describe_error
from libs.runtime.tasks import attempt

RENEW_INTERVAL = 2.5
"""Seconds between renewals."""
RETRY_INTERVAL = 0.5
"""Seconds before the next attempt after a failure."""

_MIN_SECONDS_LEFT = 0.1
"""With fewer seconds left, no response arrives in time."""


class LeaseLost(Exception):
    """The record names another holder, or none."""


class LeaseRenewer:
    def __init__(
        self,
        record: LeaseRecord,
        term: Term,
        version: str,
        *,
        env: Env,
    ) -> None:
        self.version = version
        """Revision of the record as last written; empty if unknown."""
        self.cancelled_body = False
        """Whether the renewer cancelled the body."""
        self._record = record
        self._term = term
        self._clock = env.clock
        self._random = env.random
        self._problem = ""
        # Send times of renewals without a response, by the renew time they wrote.
        self._unanswered: dict[str, float] = {}

    def start(self, owner: asyncio.Task[object]) -> list[asyncio.Task[None]]:
        """Start the two tasks; they end by themselves only after cancelling the owner."""

        def cut(why: str) -> None:
            if not self._term.end_reason:
                self.cancelled_body = True
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
            version_known = bool(self.version)
            error = await attempt(self._renew())
            match error:
                case None:
                    self._problem = ""
                    pause = jittered(RENEW_INTERVAL, self._random)
                case LeaseLost():
                    return cut(str(error))
                case Conflict() | NotFound() if version_known:
                    pause = 0.0  # the record changed: read it at once
                case KubeError():
                    self._problem = f": {error}"
                    pause = jittered(RETRY_INTERVAL, self._random)
                case _:
                    why = describe_error(error)
                    return cut(f"renewing {self._record.title} failed unexpectedly: {why}")

    async def _deadline(self, cut: Callable[[str], None]) -> None:
        while left := self._term.remaining():
            await self._clock.sleep(left)
        cut(f"{self._record.title} was not renewed for {TERM_SECONDS:g} s{self._problem}")

    async def _renew(self) -> None:
        if self._within() < _MIN_SECONDS_LEFT:
            return
        if not self.version:
            record = await self._record.read(within=self._within())
            if record is None:
                await self._write(self._restore)
                return
            self._recognize(record)
        await self._write(self._prolong)

    def _recognize(self, record: views.Lease) -> None:
        holder = record.spec.holder_identity
        if holder != self._record.holder:
            raise LeaseLost(f"{self._record.title} is held by {holder or 'no one'} now")
        self.version = record.metadata.resource_version
        sent = self._unanswered.get(record.spec.renew_time or "")
        if sent is not None:
            self._term.renew(sent)

    async def _write(self, write: Callable[[str, str], Awaitable[views.Lease]]) -> None:
        version, self.version = self.version, ""
        stamp, sent = self._record.now(), self._clock.monotonic()
        # If the wall clock was set back, two renewals may share a time: the earlier one counts.
        self._unanswered.setdefault(stamp, sent)
        written = await write(version, stamp)
        self.version = written.metadata.resource_version
        self._unanswered.clear()
        self._term.renew(sent)

    def _prolong(self, version: str, stamp: str) -> Awaitable[views.Lease]:
        return self._record.renew(version=version, stamp=stamp, within=self._within())

    def _restore(self, _version: str, stamp: str) -> Awaitable[views.Lease]:
        transitions = self._term.transitions
        return self._record.restore(transitions=transitions, stamp=stamp, within=self._within())

    def _within(self) -> float:
        return min(REQUEST_TIMEOUT, self._term.remaining())
