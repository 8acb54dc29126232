"""A Lease: at most one of several candidates leads, and the body of who does ends before another's.

Why that is so stands in `term`. What a leader does, and what he writes under which name, is not
known here.

- A record that does not change for 15 s (and the skew) of our own clock belongs to nobody. It is
  the change that counts: no clock of another machine is compared with ours.
- A record that is not there is no free lease: whoever leads may just have lost it to a `kubectl
  delete`, and makes it anew. So it is waited for as long. A deployment that brings an empty Lease
  with it is led at once.
- A renewal without an answer may have been granted: the record is read again, and tells.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from libs.kube import views
from libs.kube.client import Kube
from libs.kube.errors import Conflict, KubeError, NotFound
from libs.kube.lease.record import LeaseRecord
from libs.kube.lease.renewal import LeaseRenewer
from libs.kube.lease.term import CLOCK_SKEW, LEASE_SECONDS, REQUEST_TIMEOUT, NotLeading, Term
from libs.runtime.backoff import jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.tasks import attempt, bounded

POLL_INTERVAL = 1.0
"""Who waits looks so often."""

_log = logger()


class LeaderElector:
    """One candidate for one lease."""

    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        env: Env,
    ) -> None:
        # A name of its own for each process: a record that names us was written by us.
        self.holder = f"{identity}_{env.ids.new()[:12]}"
        self._env = env
        self._record = LeaseRecord(
            kube=kube, namespace=namespace, name=name, holder=self.holder, clock=env.clock
        )
        self._clock = env.clock
        self._random = env.random
        self._trouble = ""
        self._entered = False

    @asynccontextmanager
    async def lead(self) -> AsyncGenerator[Term]:
        """Wait until we lead; at the end of the term the body is cancelled: that is `NotLeading`.

        However the body ends, the lease is released as soon as nothing that it sent can still be
        carried out, so that the next one leads at once. One body at a time: a second would take the
        record for its own.
        """
        if self._entered:
            raise RuntimeError(f"{self.holder} holds {self._record.title} already, or waits for it")
        self._entered = True
        try:
            async with self._kept() as term:
                yield term
        finally:
            self._entered = False

    @asynccontextmanager
    async def _kept(self) -> AsyncGenerator[Term]:
        term, version = await self._led()
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("a lease is held by a task, which can be cancelled")
        before = owner.cancelling()
        keeping = LeaseRenewer(self._record, term, version, env=self._env)
        keepers = keeping.start(owner)
        try:
            yield term
        except asyncio.CancelledError as cancelled:
            if keeping.cut and owner.cancelling() - 1 <= before:
                raise NotLeading(
                    f"lead by {term.lease}", f"stopped: {term.end_reason}"
                ) from cancelled
            raise
        else:
            if keeping.cut:
                raise NotLeading(f"lead by {term.lease}", f"stopped: {term.end_reason}")
        finally:
            term.end("the body is over")
            for keeper in keepers:
                keeper.cancel()
            if keeping.cut:
                owner.uncancel()
            await asyncio.wait(keepers)
            await self._release(term, keeping.version)

    async def _led(self) -> tuple[Term, str]:
        """Our term, and the revision of the record that says so."""
        sight = _LastSeen()
        while True:
            try:
                there = await self._record.read()
                sight.see(there, now=self._clock.monotonic())
                if self._is_free(there, sight):
                    sent = self._clock.monotonic()
                    ours = await self._record.claim(there)
                    term = self._begun(ours, sent=sent)
                    if term.remaining():  # none, if we were frozen before the answer came
                        return term, ours.metadata.resource_version
                self._say("")
            except Conflict:
                pass  # somebody was faster
            except KubeError as error:
                self._say(str(error))
            until = sight.since + _patience(sight.there) - self._clock.monotonic()
            wait = jittered(POLL_INTERVAL, self._random)
            await self._clock.sleep(min(wait, until) if until > 0 else wait)

    def _is_free(self, there: views.Lease | None, sight: "_LastSeen") -> bool:
        if there is not None and there.spec.holder_identity in (None, "", self.holder):
            return True
        return self._clock.monotonic() - sight.since >= _patience(there)

    def _begun(self, ours: views.Lease, *, sent: float) -> Term:
        transitions = ours.spec.lease_transitions or 0
        title = self._record.title
        _log.info("lease taken", lease=title, holder=self.holder, transitions=transitions)
        return Term(lease=title, transitions=transitions, sent=sent, clock=self._clock)

    async def _release(self, term: Term, version: str) -> None:
        # Before that, what we sent may still be carried out: nobody else must lead.
        await self._clock.sleep(term.seconds_in_flight())
        releasing = bounded(self._let_go(version), seconds=REQUEST_TIMEOUT, clock=self._clock)
        error = await attempt(releasing)
        if error is not None:
            _log.warning("lease not released, others wait for it", lease=term.lease, exc_info=error)

    async def _let_go(self, version: str) -> None:
        if version:
            with suppress(Conflict, NotFound):
                return await self._record.release(version=version)
        there = await self._record.read()
        if there is not None and there.spec.holder_identity == self.holder:
            await self._record.release(version=there.metadata.resource_version)
        return None

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.warning("lease cannot be had", lease=self._record.title, why=trouble)
        self._trouble = trouble


class _LastSeen:
    """What a candidate saw last, and since when it has been so."""

    def __init__(self) -> None:
        self.there: views.Lease | None = None
        self.since = float("-inf")
        self._mark: str | None = None
        self._looked = float("-inf")

    def see(self, there: views.Lease | None, *, now: float) -> None:
        mark = "" if there is None else there.metadata.resource_version
        # Absence has no revision: only who looks often knows that there was nothing in between.
        blind = there is None and now - self._looked > CLOCK_SKEW
        if mark != self._mark or blind:
            self._mark, self.since = mark, now
        self.there, self._looked = there, now


def _patience(there: views.Lease | None) -> float:
    stated = 0 if there is None else there.spec.lease_duration_seconds or 0
    return max(LEASE_SECONDS, float(stated)) + CLOCK_SKEW
