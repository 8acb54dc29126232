"""The simulated API server: its parts put together, its life, and who comes in.

It lives on one loop. Who asks is known by a bearer token, or by the transport that was made for
him; what he may do is not asked: RBAC is not simulated, there a real server is the judge.
"""

import random
from collections.abc import Mapping

from libs.kube.transport import Request, Transport
from libs.runtime.clock import Clock
from libs.runtime.ids import Ids
from libs.testing.apiserver.faults import ApiFaults
from libs.testing.apiserver.inprocess import InProcessTransport
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.kinds.registry import StrategyRegistry
from libs.testing.apiserver.pipeline.handler import RequestHandler
from libs.testing.apiserver.pipeline.in_flight import InFlightRequests
from libs.testing.apiserver.reads.reader import ObjectReader
from libs.testing.apiserver.requests.replies import Reply, error_reply
from libs.testing.apiserver.schemas.rules import Predicate
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.storage.store import Store
from libs.testing.apiserver.storage.watches import ConnectionCut, ServerWatches
from libs.testing.apiserver.writes.definitions import CustomDefinitions
from libs.testing.apiserver.writes.deletion import Deleter
from libs.testing.apiserver.writes.handler import WriteHandler
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.outcome import WriteTarget
from libs.testing.apiserver.writes.pod_subresources import Evictor

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
        journal: RevisionJournal | None = None,
        rules: Mapping[str, Predicate] | None = None,
        history_bytes: int = 10_000,
    ) -> None:
        """`rules` are predicates by the text of the CEL rules that they stand for; `remembers` is
        how many changes of a kind a watch may be behind.
        """
        self._clock = clock
        self._ids = ids
        self._tokens: dict[str, str] = {}
        self._running = True
        self._watches = ServerWatches()
        self._under_way = InFlightRequests()
        self._kinds = ResourceKinds()
        self._store = Store(history_bytes=history_bytes, written=self._watches.publish)
        self.journal = RevisionJournal() if journal is None else journal
        self.faults = ApiFaults(random=random, watches=self._watches)
        strategies = StrategyRegistry(rules or {})
        writer = ObjectWriter(
            self._store, strategies=strategies, clock=clock, ids=ids, random=random
        )
        self._serving = self._serve(writer, strategies, rules or {}, random)
        self._begin(writer)

    def transport(self, *, user: str) -> Transport:
        """A way in without sockets, for a client in this process."""
        return InProcessTransport(self, user=user, clock=self._clock)

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
    def open_watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    async def stop(self) -> None:
        """Cut everything, carry out nothing more, and take nothing new."""
        self._running = False
        self._watches.end(clean=False)
        await self._under_way.cancel_all()

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
            raise ConnectionCut
        try:
            return await self._serving.answer(request, user=user)
        except StatusError as refusal:
            return error_reply(refusal)

    def _serve(
        self,
        writer: ObjectWriter,
        strategies: StrategyRegistry,
        rules: Mapping[str, Predicate],
        random: random.Random,
    ) -> RequestHandler:
        deleter = Deleter(writer, strategies=strategies)
        changes = WriteHandler(
            self._store,
            writer=writer,
            deleter=deleter,
            evictor=Evictor(self._store, self._kinds, writer=writer, deleter=deleter),
            definitions=CustomDefinitions(self._kinds, self._store, writer=writer, rules=rules),
        )
        return RequestHandler(
            clock=self._clock,
            store=self._store,
            kinds=self._kinds,
            reader=ObjectReader(self._store, self._watches, clock=self._clock, random=random),
            writes=changes,
            faults=self.faults,
            journal=self.journal,
            in_flight=self._under_way,
            user_of=self.user_of,
            restart=self.restart,
        )

    def _begin(self, writer: ObjectWriter) -> None:
        kind = self._kinds.by_path("", "v1", "namespaces")
        if kind is None:
            raise LookupError("namespaces are always served")
        for name in FIRST_NAMESPACES:
            thing = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            writer.create(WriteTarget(kind=kind, name=name, manager="kube-apiserver"), thing)
