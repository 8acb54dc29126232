"""The simulated API server: its parts put together, its life, and who comes in.

It lives on one loop. Who asks is known by a bearer token, or by the transport that was made for
him; what he may do is not asked: RBAC is not simulated, there a real server is the judge.
"""

import random
from collections.abc import Mapping

from libs.kube.transport import Request, Transport
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.testing.apiserver.faults import Faults
from libs.testing.apiserver.inprocess import InProcess
from libs.testing.apiserver.journal import Journal
from libs.testing.apiserver.kinds import Kinds
from libs.testing.apiserver.kinds.registry import Registry
from libs.testing.apiserver.reads.reading import Reader
from libs.testing.apiserver.requests.replies import Reply, refused
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.serving import Serving
from libs.testing.apiserver.serving.under_way import UnderWay
from libs.testing.apiserver.status import Refused
from libs.testing.apiserver.storage.store import Store
from libs.testing.apiserver.storage.watches import Severed, Watches
from libs.testing.apiserver.writes import Write
from libs.testing.apiserver.writes.changing import Changes
from libs.testing.apiserver.writes.defining import Definitions
from libs.testing.apiserver.writes.deleting import Deleter
from libs.testing.apiserver.writes.evicting import Evictor
from libs.testing.apiserver.writes.writing import Writer

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""There from the start."""


class ApiServer:
    """One cluster's API, in this process."""

    def __init__(
        self,
        *,
        clock: Clock,
        ids: Ids,
        random: random.Random,
        journal: Journal | None = None,
        rules: Mapping[str, Predicate] | None = None,
        remembers: int = 10_000,
    ) -> None:
        """`rules` are predicates by the text of the CEL rules that they stand for; `remembers` is
        how many changes of a kind a watch may be behind.
        """
        self._clock = clock
        self._ids = ids
        self._tokens: dict[str, str] = {}
        self._running = True
        self._watches = Watches()
        self._under_way = UnderWay()
        self._kinds = Kinds()
        self._store = Store(remembers=remembers, written=self._watches.tell)
        self.journal = Journal() if journal is None else journal
        self.faults = Faults(random=random, watches=self._watches)
        strategies = Registry(rules or {})
        writer = Writer(self._store, strategies=strategies, clock=clock, ids=ids, random=random)
        self._serving = self._serve(writer, strategies, rules or {}, random)
        self._begin(writer)

    def transport(self, *, user: str) -> Transport:
        """A way in without sockets, for a client in this process."""
        return InProcess(self, user=user, clock=self._clock)

    def add_token(self, token: str, user: str) -> None:
        """Who brings it is this user, over HTTP and for a TokenReview."""
        self._tokens[token] = user

    def user_of(self, token: str) -> str | None:
        """Whose token it is."""
        return self._tokens.get(token)

    def token_of(self, user: str) -> str:
        """One of this user's tokens, a new one where there is none."""
        for token, name in self._tokens.items():
            if name == user:
                return token
        token = self._ids.new()
        self.add_token(token, user)
        return token

    @property
    def revision(self) -> int:
        """The last that was given."""
        return self._store.revision

    @property
    def running(self) -> bool:
        """Whether connections are taken."""
        return self._running

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    async def stop(self) -> None:
        """Cut everything, carry out nothing more, and take nothing new."""
        self._running = False
        self._watches.end(clean=False)
        await self._under_way.end()

    async def start(self) -> None:
        """Serve again: all objects are there, nothing is known of how they came to be."""
        self._store.forget()
        self._running = True

    async def restart(self) -> None:
        """Stop and start."""
        await self.stop()
        await self.start()

    async def compact(self) -> None:
        """Forget the past: whoever is behind must list anew."""
        self._store.forget()

    async def answer(self, request: Request, *, user: str) -> Reply:
        """The reply to one request; `Severed` where the connection is cut instead."""
        if not self._running:
            raise Severed
        try:
            return await self._serving.answer(request, user=user)
        except Refused as refusal:
            return refused(refusal)

    def _serve(
        self,
        writer: Writer,
        strategies: Registry,
        rules: Mapping[str, Predicate],
        random: random.Random,
    ) -> Serving:
        deleter = Deleter(writer, strategies=strategies)
        changes = Changes(
            self._store,
            writer=writer,
            deleter=deleter,
            evictor=Evictor(self._store, self._kinds, writer=writer, deleter=deleter),
            definitions=Definitions(self._kinds, self._store, writer=writer, rules=rules),
        )
        return Serving(
            clock=self._clock,
            store=self._store,
            kinds=self._kinds,
            reader=Reader(self._store, self._watches, clock=self._clock, random=random),
            changes=changes,
            faults=self.faults,
            journal=self.journal,
            under_way=self._under_way,
            user_of=self.user_of,
            restart=self.restart,
        )

    def _begin(self, writer: Writer) -> None:
        kind = self._kinds.by_path("", "v1", "namespaces")
        if kind is None:
            raise LookupError("namespaces are always served")
        for name in FIRST_NAMESPACES:
            thing = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            writer.create(Write(kind=kind, name=name, manager="kube-apiserver"), thing)
