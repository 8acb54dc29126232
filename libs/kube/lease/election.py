"""Leader election: of several candidates for a Lease at most one leads, and a leader's body ends
before the next leader's begins. `term` has the arithmetic behind this.

- A record that has not changed for its duration (at least 15 s) plus the clock skew, by the local
  clock, is free. Only changes count; timestamps of other machines are not compared.
- A missing record is not free: the leader may have lost it to a `kubectl delete` and will recreate
  it. A candidate waits as long as for an unchanged one. An existing Lease without holder is free at
  once, so a deployment may create an empty one.
- A candidate watches the record (`standby`), and reads it before it takes the lease: a silent watch
  does not prove that nothing changed.
- A renewal without a response may have succeeded; the record is read again to find out.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from libs.kube import views
from libs.kube.client import Kube
from libs.kube.errors import Conflict, KubeError, NotFound
from libs.kube.lease.record import LeaseRecord
from libs.kube.lease.renewal import LeaseRenewer
from libs.kube.lease.standby import LastSeen, Standby
from libs.kube.lease.term import REQUEST_TIMEOUT, FencedTransport, NotLeading, Term
from libs.kube.requests import Transport
from libs.runtime.clock import jittered
from libs.runtime.env import Env
from libs.runtime.logs import logger
from libs.runtime.tasks import attempt, bounded

POLL_INTERVAL = 1.0
"""Seconds between two looks of a candidate: at what the watch has told, or else at the record."""

_log = logger()


class LeaderElector:
    def __init__(
        self,
        *,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        env: Env,
    ) -> None:
        # Unique per process: a record that names this holder was written by it.
        self.holder = f"{identity}_{env.ids.new()[:12]}"
        self._env = env
        self._record = LeaseRecord(
            kube=kube, namespace=namespace, name=name, holder=self.holder, clock=env.clock
        )
        self._clock = env.clock
        self._random = env.random
        self._logged_problem = ""
        self._active = False
        self.server_ahead = 0.0
        """Seconds by which the server's clock was ahead of this machine's at the last claim."""

    @asynccontextmanager
    async def lead(self) -> AsyncGenerator[Term]:
        """Wait for the lease, then run the body; when the term ends, cancel the body and raise
        `NotLeading`.

        However the body ends, the lease is released as soon as no request of the term can still be
        carried out, so that the next candidate leads at once. Only one body at a time, because a
        second would take the record for its own.
        """
        if self._active:
            raise RuntimeError(f"{self.holder} already holds {self._record.title} or waits for it")
        self._active = True
        try:
            async with self._run_term() as term:
                yield term
        finally:
            self._active = False

    @asynccontextmanager
    async def _run_term(self) -> AsyncGenerator[Term]:
        last_seen = LastSeen(self.holder)
        async with Standby(self._record, last_seen, env=self._env) as standby:
            term, version = await self._acquire(last_seen, standby)
            standby.stop()  # without waiting for its end: the term is running
            async with self._hold(term, version):
                yield term

    @asynccontextmanager
    async def _hold(self, term: Term, version: str) -> AsyncGenerator[None]:
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("a lease needs a task that can be cancelled")
        before = owner.cancelling()
        renewer = LeaseRenewer(self._record, term, version, env=self._env)
        tasks = renewer.start(owner)
        try:
            yield
        except asyncio.CancelledError as cancelled:
            if renewer.cancelled_body and owner.cancelling() - 1 <= before:
                raise NotLeading(
                    f"lead by {term.lease}", f"stopped: {term.end_reason}"
                ) from cancelled
            raise
        else:
            if renewer.cancelled_body:
                raise NotLeading(f"lead by {term.lease}", f"stopped: {term.end_reason}")
        finally:
            term.end("the body has ended")
            for task in tasks:
                task.cancel()
            if renewer.cancelled_body:
                owner.uncancel()
            await asyncio.wait(tasks)
            await self._release(term, renewer.version)

    async def _acquire(self, last_seen: LastSeen, standby: Standby) -> tuple[Term, str]:
        """Acquire the lease; return the term and the record's revision."""
        while True:
            if not (standby.agrees and last_seen.seconds_until_free(now=self._now())):
                acquired = await self._try_to_acquire(last_seen)
                if acquired is not None:
                    return acquired
            wait = jittered(POLL_INTERVAL, self._random)
            until = last_seen.seconds_until_free(now=self._now())
            await standby.wait(min(wait, until) if until else wait)

    async def _try_to_acquire(self, last_seen: LastSeen) -> tuple[Term, str] | None:
        """Read the record, and take the lease if it is free; None: it is not, or was lost."""
        try:
            record = await self._record.read()
            last_seen.update(record, now=self._now())
            if not last_seen.seconds_until_free(now=self._now()):
                sent_at, before = self._now(), self._clock.now()
                written = await self._record.claim(record)
                self._compare_clocks(written, between=(before, self._clock.now()))
                term = self._begin_term(written, sent_at=sent_at)
                if term.remaining():  # none if the process was frozen before the response
                    return term, written.metadata.resource_version
            self._log_problem("")
        except Conflict:
            pass  # another candidate was faster
        except KubeError as error:
            self._log_problem(str(error))
        return None

    def _now(self) -> float:
        return self._clock.monotonic()

    def _compare_clocks(self, written: views.Lease, *, between: tuple[float, float]) -> None:
        server = self._record.server_time(written)
        if server is not None:
            # The server tells whole seconds, so it was half a second later on average.
            self.server_ahead = server + 0.5 - sum(between) / 2

    def _begin_term(self, written: views.Lease, *, sent_at: float) -> Term:
        transitions = written.spec.lease_transitions or 0
        title = self._record.title
        _log.info("lease taken", lease=title, holder=self.holder, transitions=transitions)
        return Term(lease=title, transitions=transitions, sent=sent_at, clock=self._clock)

    async def _release(self, term: Term, version: str) -> None:
        # Until then a request of this term may be carried out, so no other candidate may lead.
        await self._clock.sleep(term.seconds_in_flight())
        releasing = bounded(self._clear_holder(version), seconds=REQUEST_TIMEOUT, clock=self._clock)
        error = await attempt(releasing)
        if error is not None:
            _log.warning(
                "lease not released; the next leader waits until it expires",
                lease=term.lease,
                exc_info=error,
            )

    async def _clear_holder(self, version: str) -> None:
        if version:
            with suppress(Conflict, NotFound):
                return await self._record.release(version=version)
        record = await self._record.read()
        if record is not None and record.spec.holder_identity == self.holder:
            await self._record.release(version=record.metadata.resource_version)
        return None

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._logged_problem:
            _log.warning("cannot acquire the lease", lease=self._record.title, why=problem)
        self._logged_problem = problem


STAND_BACK_SECONDS = 5.0
"""Pause before a deposed leader becomes a candidate again."""


class Deposed(Exception):
    """Another leader is active: release the lease and wait. Raised by the function of a term."""


class Candidate:
    """A process that leads whenever it holds the lease."""

    def __init__(
        self,
        transport: Transport,
        *,
        manager: str,
        namespace: str,
        lease: str,
        identity: str,
        env: Env,
    ) -> None:
        self.kube = Kube(transport, manager=manager, clock=env.clock)
        """Unfenced client, for reads and for writes that need no leader."""
        self._transport = transport
        self._manager = manager
        self._env = env
        self._elector = LeaderElector(
            kube=self.kube, namespace=namespace, name=lease, identity=identity, env=env
        )
        self.holder = self._elector.holder

    @property
    def server_ahead(self) -> float:
        """Seconds by which the server's clock was ahead when the term began; within a second."""
        return self._elector.server_ahead

    async def run(
        self,
        lead: Callable[[Kube], Awaitable[object]],
        *,
        on_term_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Run `lead` with a fenced client in each term, until cancelled."""
        while True:
            try:
                async with self._elector.lead() as term:
                    fenced = FencedTransport(self._transport, term, clock=self._env.clock)
                    await lead(Kube(fenced, manager=self._manager, clock=self._env.clock))
            except NotLeading as over:
                _log.warning("no longer leading", why=str(over))
            except Deposed as over:
                _log.warning("deposed: leading ends at once", why=str(over))
                await self._env.clock.sleep(jittered(STAND_BACK_SECONDS, self._env.random))
            finally:
                on_term_end()
