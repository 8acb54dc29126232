"""Handle requests: discovery, parsing, faults, execution, and the journal."""

from collections.abc import Awaitable, Callable

from libs.kube.requests import Request
from libs.runtime.clock import Clock
from libs.testing.apiserver import discovery
from libs.testing.apiserver.audit_log import AuditLog
from libs.testing.apiserver.faults import (
    ApiFaults,
    DropWatch,
    FaultEffect,
    FaultTarget,
    Hang,
    Stale,
    apply_after,
    apply_before,
)
from libs.testing.apiserver.journal import (
    RevisionJournal,
    granted_revision,
    refused_revision,
    target_identity,
)
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.objects.json import encoded
from libs.testing.apiserver.portforward import ForwardCall, check_pod
from libs.testing.apiserver.reads import ListPage, ObjectReader, ReadRequest, encode_list
from libs.testing.apiserver.replies import InFlightRequests, Reply
from libs.testing.apiserver.requests import (
    READS,
    ApiCall,
    accepted_form,
    list_options,
    parse_call,
    request_timeout,
)
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.store import Store
from libs.testing.apiserver.tokens import TokenCall, TokenEndpoints, token_call
from libs.testing.apiserver.watches import ConnectionCut
from libs.testing.apiserver.writes.admission import WriteOutcome
from libs.testing.apiserver.writes.deletion import delete_options
from libs.testing.apiserver.writes.handler import WriteHandler, WriteRequest

_TEXT = "text/plain; charset=utf-8"
_PROBES = ("/healthz", "/livez", "/readyz")


class RequestHandler:
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
        audit_log: AuditLog | None,
        in_flight: InFlightRequests,
        restart: Callable[[], Awaitable[None]],
        tokens: Callable[[], TokenEndpoints],
    ) -> None:
        self._clock = clock
        self._store = store
        self._kinds = kinds
        self._reader = reader
        self._writes = writes
        self._faults = faults
        self._journal = journal
        self._audit_log = audit_log
        self._in_flight = in_flight
        self._restart = restart
        self._tokens = tokens

    async def handle(self, request: Request, *, user: str) -> Reply:
        """Return the reply, or raise `StatusError`."""
        if (token_request := token_call(request.path)) is not None:
            return await self._token(token_request, request, user=user)
        if request.method == "GET":
            reply = self._discover(request)
            if reply is not None:
                return reply
        call = parse_call(request, user=user, kinds=self._kinds)
        effects, limit = self._faults.effects_on(call.fault_target), request_timeout(request.query)
        if any(isinstance(effect, Hang) for effect in effects):
            work, outlives = self._hang(), False
        elif call.verb in READS:
            work, outlives = self._read(call, effects, limit), False
        else:
            work, outlives = self._write(call, effects, limit), True
        reply = await self._in_flight.run(work, outlives=outlives)
        try:
            return apply_after(reply, effects, clock=self._clock)
        except ConnectionCut:
            await reply.close()  # a watch is already registered
            raise

    def _discover(self, request: Request) -> Reply | None:
        if request.path in _PROBES:
            return Reply(200, b"ok", content_type=_TEXT)
        document = discovery.discovery_document(request.path, tuple(self._kinds))
        if document is None:
            return None
        accepted_form(request.headers.get("accept", ""), ())
        return Reply(200, encoded(document))

    async def _token(self, call: TokenCall, request: Request, *, user: str) -> Reply:
        verb = "create" if call.kind else "get"
        target = FaultTarget(verb=verb, kind=call.kind, name=call.account, user=user)
        effects = self._faults.effects_on(target)
        if any(isinstance(effect, Hang) for effect in effects):
            return await self._in_flight.run(self._hang(), outlives=False)
        await self._before(effects, request_timeout(request.query))
        reply = await self._tokens().answer(call, request)
        return apply_after(reply, effects, clock=self._clock)

    async def check_forward(self, call: ForwardCall, *, user: str) -> None:
        """Raise `StatusError` where a port of this pod is not forwarded."""
        target = FaultTarget(verb="portforward", kind="Pod", name=call.pod, user=user)
        effects = self._faults.effects_on(target)
        if any(isinstance(effect, Hang) for effect in effects):
            await self._in_flight.run(self._hang(), outlives=False)
        await self._before(effects, request_timeout({}))
        check_pod(call, self._store, self._kinds)

    async def _hang(self) -> Reply:
        while True:
            await self._clock.sleep(3_600.0)

    async def _before(self, effects: list[FaultEffect], limit: float) -> None:
        await apply_before(effects, limit=limit, clock=self._clock, restart=self._restart)

    async def _read(self, call: ApiCall, effects: list[FaultEffect], limit: float) -> Reply:
        await self._before(effects, limit)
        request = _read_request(call)
        if call.listing is None:
            return await self._reader.get(request)
        if call.verb == "list":
            ages = [effect.changes for effect in effects if isinstance(effect, Stale)]
            stale_changes = max(ages, default=None)
            return await self._reader.list(request, call.listing, stale_changes=stale_changes)
        drops = [effect for effect in effects if isinstance(effect, DropWatch)]
        return await self._reader.watch(request, call.listing, drop=drops[0] if drops else None)

    async def _write(self, call: ApiCall, effects: list[FaultEffect], limit: float) -> Reply:
        try:
            await self._before(effects, limit)
            # From here on nothing is awaited: a write is atomic.
            if call.verb == "deletecollection":
                return self._delete_many(call)
            with self._store.dry_run(on=call.dry_run):
                outcome = self._writes.execute(_write_request(call))
        except StatusError as refusal:
            self._record(call, refusal.code, None)
            self._log(call, refusal.code)
            raise
        self._record(call, outcome.code, outcome)
        self._log(call, outcome.code, outcome.raw)
        return self._reply(call, outcome)

    def _delete_many(self, call: ApiCall) -> Reply:
        options = delete_options(call.request.body, call.request.query)
        list_options(call.request.query)
        selected = self._reader.selected(_read_request(call))
        for stored in selected:
            outcome = self._writes.delete_one(_write_request(call), stored, options)
            self._record(call, outcome.code, outcome)
        page = ListPage(items=list(selected), revision=self._store.revision)
        body = encode_list(call.route.kind, page)
        self._log(call, 200, body)
        return Reply(200, body)

    def _reply(self, call: ApiCall, outcome: WriteOutcome) -> Reply:
        raw = outcome.raw
        if not outcome.is_status_body:
            raw = self._reader.presented(_read_request(call), raw)
        return Reply(outcome.code, raw)

    def _record(self, call: ApiCall, code: int, outcome: WriteOutcome | None) -> None:
        """Record a write, or a refused write, in the journal."""
        if call.dry_run:
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

    def _log(self, call: ApiCall, code: int, response: bytes = b"") -> None:
        if self._audit_log is not None:
            self._audit_log.add(call, code, response, now=self._clock.now())


def _read_request(call: ApiCall) -> ReadRequest:
    query = call.request.query
    return ReadRequest(route=call.route, query=query, accept=call.accept, user=call.user)


def _write_request(call: ApiCall) -> WriteRequest:
    return WriteRequest(
        route=call.route,
        query=call.request.query,
        content_type=call.content_type,
        body=call.request.body,
        manager=call.manager,
    )
