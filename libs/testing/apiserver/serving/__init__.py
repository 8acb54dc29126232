"""From a request to its reply: understood, struck by faults, carried out, journalled.

Must not know how requests come in, nor when the server runs.
"""

from collections.abc import Awaitable, Callable

from libs.kube.transport import Request
from libs.runtime.clock import Clock
from libs.testing.apiserver.faults import DropWatch, Faults, Hang, Stale, Strike
from libs.testing.apiserver.journal import Journal
from libs.testing.apiserver.kinds import Kinds
from libs.testing.apiserver.objects.encoding import encoded
from libs.testing.apiserver.reads.lists import Page, as_version, written
from libs.testing.apiserver.reads.reading import Ask, Reader
from libs.testing.apiserver.requests.options import allotted, list_options
from libs.testing.apiserver.requests.replies import Reply
from libs.testing.apiserver.serving import striking
from libs.testing.apiserver.serving.calls import READS, Call, understood
from libs.testing.apiserver.serving.records import aimed_at, is_dry, turned_down, written_down
from libs.testing.apiserver.serving.reviews import review
from libs.testing.apiserver.serving.under_way import UnderWay
from libs.testing.apiserver.showing import discovery
from libs.testing.apiserver.showing.negotiation import OBJECT, content_type, form
from libs.testing.apiserver.status import Refused
from libs.testing.apiserver.storage.store import Store
from libs.testing.apiserver.storage.watches import Severed
from libs.testing.apiserver.writes import Outcome
from libs.testing.apiserver.writes.changing import Changes, Order
from libs.testing.apiserver.writes.deleting import delete_options

_TEXT = "text/plain; charset=utf-8"
_PROBES = ("/healthz", "/livez", "/readyz")


class Serving:
    """Answers every request that comes in."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: Store,
        kinds: Kinds,
        reader: Reader,
        changes: Changes,
        faults: Faults,
        journal: Journal,
        under_way: UnderWay,
        user_of: Callable[[str], str | None],
        restart: Callable[[], Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._store = store
        self._kinds = kinds
        self._reader = reader
        self._changes = changes
        self._faults = faults
        self._journal = journal
        self._under_way = under_way
        self._user_of = user_of
        self._restart = restart

    async def answer(self, request: Request, *, user: str) -> Reply:
        """The reply, or a refusal."""
        if request.method == "GET":
            known = self._about(request)
            if known is not None:
                return known
        call = understood(request, user=user, kinds=self._kinds)
        strikes, limit = self._faults.strikes(call.target), allotted(request.query)
        if any(isinstance(strike, Hang) for strike in strikes):
            work, outlives = self._hang(), False
        elif call.verb in READS or call.route.kind.plural == "tokenreviews":
            work, outlives = self._read(call, strikes, limit), False
        else:
            work, outlives = self._write(call, strikes, limit), True
        reply = await self._under_way.run(work, outlives=outlives)
        try:
            return striking.after(reply, strikes, clock=self._clock)
        except Severed:
            await reply.close()  # of a watch, that listens already
            raise

    def _about(self, request: Request) -> Reply | None:
        """The server itself: is it there, and what does it serve."""
        if request.path in _PROBES:
            return Reply(200, b"ok", content_type=_TEXT)
        accept = request.headers.get("accept", "")
        said = discovery.answer(request.path, tuple(self._kinds), accept)
        if said is None:
            return None
        media = content_type(discovery.negotiated(request.path, accept))
        return Reply(200, encoded(said), content_type=media)

    async def _hang(self) -> Reply:
        while True:
            await self._clock.sleep(3_600.0)

    async def _before(self, strikes: list[Strike], limit: float) -> None:
        await striking.before(strikes, limit=limit, clock=self._clock, restart=self._restart)

    async def _read(self, call: Call, strikes: list[Strike], limit: float) -> Reply:
        await self._before(strikes, limit)
        if call.route.kind.plural == "tokenreviews":
            return Reply(201, encoded(review(call.request.body, self._user_of)))
        ask = self._ask(call)
        if call.listing is None:
            return await self._reader.get(ask)
        if call.verb == "list":
            ages = [strike.changes for strike in strikes if isinstance(strike, Stale)]
            return await self._reader.list(ask, call.listing, stale=max(ages, default=None))
        drops = [strike for strike in strikes if isinstance(strike, DropWatch)]
        return await self._reader.watch(ask, call.listing, drop=drops[0] if drops else None)

    async def _write(self, call: Call, strikes: list[Strike], limit: float) -> Reply:
        try:
            await self._before(strikes, limit)
            # From here on nothing is awaited: no other request sees half of this one.
            if call.verb == "deletecollection":
                return self._delete_many(call)
            outcome = self._changes.carry_out(_order(call))
        except Refused as refusal:
            self._note(call, refusal.code, None)
            raise
        self._note(call, outcome.code, outcome)
        return self._shown(call, outcome)

    def _delete_many(self, call: Call) -> Reply:
        options = delete_options(call.request.body, call.request.query)
        list_options(call.request.query)
        doomed = self._reader.selected(self._ask(call))
        for stored in doomed:
            outcome = self._changes.delete_one(_order(call), stored, options)
            self._note(call, outcome.code, outcome)
        listed = Page(items=list(doomed), revision=self._store.revision)
        return Reply(200, written(call.route.kind, listed))

    def _shown(self, call: Call, outcome: Outcome) -> Reply:
        kind, raw = call.route.kind, outcome.raw
        if outcome.bare:
            return Reply(outcome.code, raw)
        shown, raw = form(call.accept, OBJECT), as_version(kind, raw)
        return Reply(outcome.code, self._reader.shown(self._ask(call), raw, shown))

    def _ask(self, call: Call) -> Ask:
        query = call.request.query
        return Ask(route=call.route, query=query, accept=call.accept, user=call.user)

    def _note(self, call: Call, code: int, outcome: Outcome | None) -> None:
        """Put a write, or what would have been one, into the journal."""
        if is_dry(call):
            return
        now = self._clock.now()
        if outcome is not None:
            self._journal.add(written_down(call, outcome, now=now))
            return
        name, uid = aimed_at(call)
        live = self._store.shelf(call.route.kind).get(call.route.namespace, name)
        if not uid and live is not None:
            uid = live.uid
        self._journal.add(turned_down(call, code, name=name, uid=uid, now=now))


def _order(call: Call) -> Order:
    return Order(
        route=call.route,
        query=call.request.query,
        content_type=call.content_type,
        body=call.request.body,
        manager=call.manager,
    )
