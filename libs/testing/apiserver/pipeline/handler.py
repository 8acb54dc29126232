"""From a request to its reply: understood, struck by faults, carried out, journalled.

Must not know how requests come in, nor when the server runs.
"""

from collections.abc import Awaitable, Callable

from libs.kube.transport import Request
from libs.runtime.clock import Clock
from libs.testing.apiserver import discovery
from libs.testing.apiserver.faults import ApiFaults, DropWatch, FaultEffect, Hang, Stale
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.pipeline import fault_effects
from libs.testing.apiserver.pipeline.calls import READS, ApiCall, parse_call
from libs.testing.apiserver.pipeline.in_flight import InFlightRequests
from libs.testing.apiserver.pipeline.revisions import (
    granted_revision,
    is_dry_run,
    refused_revision,
    target_identity,
)
from libs.testing.apiserver.pipeline.token_reviews import review_token
from libs.testing.apiserver.reads.lists import ListPage, as_version, encode_list
from libs.testing.apiserver.reads.reader import ObjectReader, ReadRequest
from libs.testing.apiserver.requests.negotiation import OBJECT, content_type, negotiate
from libs.testing.apiserver.requests.options import list_options, request_timeout
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import Store
from libs.testing.apiserver.storage.watches import ConnectionCut
from libs.testing.apiserver.writes.deletion import delete_options
from libs.testing.apiserver.writes.handler import WriteHandler, WriteRequest
from libs.testing.apiserver.writes.outcome import WriteOutcome

_TEXT = "text/plain; charset=utf-8"
_PROBES = ("/healthz", "/livez", "/readyz")


class RequestHandler:
    """Answers every request that comes in."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: Store,
        kinds: ResourceKinds,
        reader: ObjectReader,
        writes: WriteHandler,
        faults: ApiFaults,
        journal: RevisionJournal,
        in_flight: InFlightRequests,
        user_of: Callable[[str], str | None],
        restart: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._store = store
        self._kinds = kinds
        self._reader = reader
        self._changes = writes
        self._faults = faults
        self._journal = journal
        self._under_way = in_flight
        self._user_of = user_of
        self._restart = restart

    async def answer(self, request: Request, *, user: str) -> Reply:
        """The reply, or a refusal."""
        if request.method == "GET":
            known = self._about(request)
            if known is not None:
                return known
        call = parse_call(request, user=user, kinds=self._kinds)
        strikes, limit = self._faults.effects_on(call.fault_target), request_timeout(request.query)
        if any(isinstance(strike, Hang) for strike in strikes):
            work, outlives = self._hang(), False
        elif call.verb in READS or call.route.kind.plural == "tokenreviews":
            work, outlives = self._read(call, strikes, limit), False
        else:
            work, outlives = self._write(call, strikes, limit), True
        reply = await self._under_way.run(work, outlives=outlives)
        try:
            return fault_effects.apply_after(reply, strikes, clock=self._clock)
        except ConnectionCut:
            await reply.close()  # of a watch, that listens already
            raise

    def _about(self, request: Request) -> Reply | None:
        """The server itself: is it there, and what does it serve."""
        if request.path in _PROBES:
            return Reply(200, b"ok", content_type=_TEXT)
        accept = request.headers.get("accept", "")
        said = discovery.discovery_document(request.path, tuple(self._kinds), accept)
        if said is None:
            return None
        media = content_type(discovery.negotiated(request.path, accept))
        return Reply(200, encoded(said), content_type=media)

    async def _hang(self) -> Reply:
        while True:
            await self._clock.sleep(3_600.0)

    async def _before(self, strikes: list[FaultEffect], limit: float) -> None:
        await fault_effects.apply_before(
            strikes, limit=limit, clock=self._clock, restart=self._restart
        )

    async def _read(self, call: ApiCall, strikes: list[FaultEffect], limit: float) -> Reply:
        await self._before(strikes, limit)
        if call.route.kind.plural == "tokenreviews":
            return Reply(201, encoded(review_token(call.request.body, self._user_of)))
        ask = self._ask(call)
        if call.listing is None:
            return await self._reader.get(ask)
        if call.verb == "list":
            ages = [strike.changes for strike in strikes if isinstance(strike, Stale)]
            return await self._reader.list(ask, call.listing, stale=max(ages, default=None))
        drops = [strike for strike in strikes if isinstance(strike, DropWatch)]
        return await self._reader.watch(ask, call.listing, drop=drops[0] if drops else None)

    async def _write(self, call: ApiCall, strikes: list[FaultEffect], limit: float) -> Reply:
        try:
            await self._before(strikes, limit)
            # From here on nothing is awaited: no other request sees half of this one.
            if call.verb == "deletecollection":
                return self._delete_many(call)
            outcome = self._changes.execute(_order(call))
        except StatusError as refusal:
            self._note(call, refusal.code, None)
            raise
        self._note(call, outcome.code, outcome)
        return self._shown(call, outcome)

    def _delete_many(self, call: ApiCall) -> Reply:
        options = delete_options(call.request.body, call.request.query)
        list_options(call.request.query)
        doomed = self._reader.selected(self._ask(call))
        for stored in doomed:
            outcome = self._changes.delete_one(_order(call), stored, options)
            self._note(call, outcome.code, outcome)
        listed = ListPage(items=list(doomed), revision=self._store.revision)
        return Reply(200, encode_list(call.route.kind, listed))

    def _shown(self, call: ApiCall, outcome: WriteOutcome) -> Reply:
        kind, raw = call.route.kind, outcome.raw
        if outcome.bare:
            return Reply(outcome.code, raw)
        shown, raw = negotiate(call.accept, OBJECT), as_version(kind, raw)
        return Reply(outcome.code, self._reader.negotiated(self._ask(call), raw, shown))

    def _ask(self, call: ApiCall) -> ReadRequest:
        query = call.request.query
        return ReadRequest(route=call.route, query=query, accept=call.accept, user=call.user)

    def _note(self, call: ApiCall, code: int, outcome: WriteOutcome | None) -> None:
        """Put a write, or what would have been one, into the journal."""
        if is_dry_run(call):
            return
        now = self._clock.now()
        if outcome is not None:
            self._journal.add(granted_revision(call, outcome, now=now))
            return
        name, uid = target_identity(call)
        live = self._store.of_kind(call.route.kind).get(call.route.namespace, name)
        if not uid and live is not None:
            uid = live.uid
        self._journal.add(refused_revision(call, code, name=name, uid=uid, now=now))


def _order(call: ApiCall) -> WriteRequest:
    return WriteRequest(
        route=call.route,
        query=call.request.query,
        content_type=call.content_type,
        body=call.request.body,
        manager=call.manager,
    )
