"""The simulated API server.

Users are authenticated by a bearer token, or by their in-process transport. RBAC is not simulated.
"""

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property

from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response, Transport
from libs.runtime.clock import Clock
from libs.runtime.env import Ids
from libs.testing.apiserver.audit_log import AuditLog
from libs.testing.apiserver.faults import ApiFaults
from libs.testing.apiserver.handler import RequestHandler
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.kinds.schema import Predicate
from libs.testing.apiserver.kinds.workloads import StrategyRegistry
from libs.testing.apiserver.portforward import ForwardCall
from libs.testing.apiserver.reads import ObjectReader
from libs.testing.apiserver.replies import InFlightRequests, Reply, error_reply
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.store import Store
from libs.testing.apiserver.tokens import TokenEndpoints
from libs.testing.apiserver.watches import ConnectionCut, ServerWatches
from libs.testing.apiserver.writes.admission import WriteTarget
from libs.testing.apiserver.writes.deletion import Deleter
from libs.testing.apiserver.writes.handler import CustomDefinitions, WriteHandler
from libs.testing.apiserver.writes.object_writer import ObjectWriter
from libs.testing.apiserver.writes.pod_subresources import Evictor
from libs.testing.tokens import TokenIssuer

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
"""The namespaces that exist from the start."""


class ApiServer:
    def __init__(
        self,
        *,
        clock: Clock,
        ids: Ids,
        random: random.Random,
        journal: RevisionJournal | None = None,
        audit_log: AuditLog | None = None,
        rules: Mapping[str, Predicate] | None = None,
        history_changes: int = 10_000,
    ) -> None:
        """Configure the server.

        `rules` are predicates by the text of the CEL rule that each stands for; a watch may be
        `history_changes` of its kind behind.
        """
        self._clock = clock
        self._ids = ids
        self._tokens: dict[str, str] = {}
        self._running = True
        self._watches = ServerWatches()
        self._in_flight = InFlightRequests()
        self._kinds = ResourceKinds()
        self._store = Store(history_limit=history_changes, written=self._watches.publish)
        self.listening: dict[ForwardCall, int] = {}
        """By port of a pod, the port of this machine on which what listens there is served."""
        self.journal = RevisionJournal() if journal is None else journal
        self._audit_log = audit_log
        self.faults = ApiFaults(random=random, watches=self._watches)
        strategies = StrategyRegistry(rules or {})
        writer = ObjectWriter(
            self._store, strategies=strategies, clock=clock, ids=ids, random=random
        )
        self._handler = self._request_handler(writer, strategies, rules or {}, random)
        self._create_namespaces(writer)

    def transport(self, *, user: str) -> Transport:
        """Return a transport without sockets, for clients in this process."""

        async def handle(request: Request) -> Reply:
            return await self.handle(request, user=user)

        return InProcessTransport(handle, clock=self._clock)

    def add_token(self, token: str, user: str) -> None:
        """Register a token of this user, for HTTP."""
        self._tokens[token] = user

    def user_of(self, token: str) -> str | None:
        return self._tokens.get(token)

    def token_of(self, user: str) -> str:
        """Return a token of this user; create the first."""
        for token, name in self._tokens.items():
            if name == user:
                return token
        token = self._ids.new()
        self.add_token(token, user)
        return token

    @cached_property
    def issuer(self) -> TokenIssuer:
        """The issuer of ServiceAccount tokens; its key is made when it is first used."""
        return TokenIssuer(clock=self._clock)

    @property
    def revision(self) -> int:
        return self._store.revision

    @property
    def running(self) -> bool:
        return self._running

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    async def stop(self) -> None:
        """Cut all connections, end all requests, and accept none."""
        self._running = False
        self._watches.end(clean=False)
        await self._in_flight.cancel_all()

    async def start(self) -> None:
        """Accept requests again, with all objects and without their history."""
        self._store.forget()
        self._running = True

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def compact(self) -> None:
        """Forget the history: a watch that is behind must list again."""
        self._store.forget()

    async def handle(self, request: Request, *, user: str) -> Reply:
        """Return the reply to a request; raise `ConnectionCut` where none is sent."""
        if not self._running:
            raise ConnectionCut
        try:
            return await self._handler.handle(request, user=user)
        except StatusError as error:
            return error_reply(error)

    async def check_forward(self, call: ForwardCall, *, user: str) -> None:
        """Raise `StatusError` where a port is not forwarded, `ConnectionCut` where none answers."""
        if not self._running:
            raise ConnectionCut
        await self._handler.check_forward(call, user=user)

    def _request_handler(
        self,
        writer: ObjectWriter,
        strategies: StrategyRegistry,
        rules: Mapping[str, Predicate],
        random: random.Random,
    ) -> RequestHandler:
        deleter = Deleter(writer, strategies=strategies)
        writes = WriteHandler(
            self._store,
            writer=writer,
            deleter=deleter,
            evictor=Evictor(self._store, self._kinds, writer=writer, deleter=deleter),
            definitions=CustomDefinitions(
                self._kinds, self._store, watches=self._watches, writer=writer, rules=rules
            ),
        )
        return RequestHandler(
            clock=self._clock,
            store=self._store,
            kinds=self._kinds,
            reader=ObjectReader(self._store, self._watches, clock=self._clock, random=random),
            writes=writes,
            faults=self.faults,
            journal=self.journal,
            audit_log=self._audit_log,
            in_flight=self._in_flight,
            restart=self.restart,
            tokens=self._token_endpoints,
        )

    def _token_endpoints(self) -> TokenEndpoints:
        return TokenEndpoints(self._store, self._kinds, issuer=self.issuer, clock=self._clock)

    def _create_namespaces(self, writer: ObjectWriter) -> None:
        kind = self._kinds.by_path("", "v1", "namespaces")
        if kind is None:
            raise LookupError("namespaces are always served")
        for name in FIRST_NAMESPACES:
            namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            writer.create(WriteTarget(kind=kind, name=name, manager="kube-apiserver"), namespace)


Handler = Callable[[Request], Awaitable[Reply]]


class InProcessTransport:
    """A transport without sockets, which works on the virtual loop."""

    def __init__(self, handle: Handler, *, clock: Clock) -> None:
        self._handle = handle
        self._clock = clock

    def __str__(self) -> str:
        return "the simulated server"

    def open(self, request: Request) -> AbstractAsyncContextManager[Response]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncGenerator[Response]:
        await self._clock.sleep(0)  # other tasks run, as while a request travels
        try:
            reply = await self._handle(request)
        except ConnectionCut as error:
            raise _cut(request) from error
        try:
            yield _Response(request, reply)
        finally:
            await reply.close()


class _Response:
    def __init__(self, request: Request, reply: Reply) -> None:
        self._request = request
        self._reply = reply

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._reply.headers

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.chunks():
                yield chunk
        except ConnectionCut as error:
            raise _cut(self._request) from error


def _cut(request: Request) -> Unavailable:
    tried = f"{request.method} {request.path}"
    return Unavailable(tried, "the connection was cut; the request may have been executed")
