"""A server of one Lease and of what its leaders create, on a network that does its worst.

It keeps the two promises that the arithmetic of leading rests on, and stretches both to the end: a
request arrives within 3 s of its sending or never, whatever its sender does meanwhile; and it is
carried out within its `timeout` of arriving, or never. Else everything may be lost, late, refused
or out of order.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec

from libs.contracts.journal import Revision, Verb
from libs.kube.requests import Request, Response
from libs.runtime.clock import Clock

NAMESPACE = "sluice"
LEASE = "scheduler"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
MAX_DELAY = 3.0


class RequestFault(msgspec.Struct, frozen=True, kw_only=True):
    """What befalls one request."""

    way: float = 0.01
    """Seconds until it arrives; past `WAY` it never does."""
    work: float = 0.01
    """Seconds until it is carried out; past its timeout it never is."""
    back: float = 0.01
    """Seconds until the answer is there; infinite is never."""
    refusal: int = 0
    """The status instead of doing it."""


NO_FAULT = RequestFault()
NEVER = float("inf")

FaultModel = Callable[[str, Request], RequestFault]
"""By user and request."""


def no_faults(_user: str, _request: Request) -> RequestFault:
    return NO_FAULT


def random_faults(random: Random, *, badness: float) -> FaultModel:
    """Each part of each way goes wrong with that probability, in every way there is."""

    def late(most: float) -> float:
        return random.uniform(0.0, most) if random.random() < badness else 0.01

    def fate(_user: str, _request: Request) -> RequestFault:
        wrong = random.random() < badness
        return RequestFault(
            way=NEVER if wrong and random.random() < 0.3 else late(MAX_DELAY),
            work=late(4.0),
            back=NEVER if wrong and random.random() < 0.3 else late(6.0),
            refusal=random.choice([409, 429, 500]) if wrong and random.random() < 0.3 else 0,
        )

    return fate


class _Answer:
    headers: Mapping[str, str] = {}

    def __init__(self, status: int, content: Any) -> None:
        self.status = status
        self._content = json.dumps(content).encode()

    async def body(self) -> bytes:
        return self._content

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._content


class FakeLeaseServer:
    """One Lease, a heap of ConfigMaps, and a journal of what was carried out."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.weather: FaultModel = no_faults
        self.lease: dict[str, Any] | None = None
        self.journal: list[Revision] = []
        self.asked: list[tuple[float, str, Request]] = []
        self._revision = 0
        self._made = 0

    def transport(self, user: str) -> "FakeLeaseTransport":
        return FakeLeaseTransport(self, user)

    def delete(self) -> None:
        """By a person."""
        self.lease = None

    @property
    def holder(self) -> str:
        return self.lease["spec"]["holderIdentity"] if self.lease else ""

    def carry_out(self, user: str, request: Request) -> tuple[int, Any]:
        if not request.path.startswith(LEASES):
            return self._effect(user, request)
        if request.method == "POST":
            return self._create(user, json.loads(request.body))
        if self.lease is None:
            return 404, _status(404, "NotFound", name=LEASE)
        if request.method == "GET":
            return 200, self.lease
        return self._patch(user, json.loads(request.body))

    def _create(self, user: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.lease is not None:
            return 409, _status(409, "AlreadyExists")
        self._made += 1
        self.lease = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self._made}"}}
        self._commit(user, Verb.CREATE, "Lease", LEASE, before={}, after=body["spec"])
        return 201, self.lease

    def _patch(self, user: str, body: dict[str, Any]) -> tuple[int, Any]:
        assert self.lease is not None
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return 409, _status(409, "Conflict")
        before = self.lease["spec"]
        self.lease = {**self.lease, "spec": {**before, **body["spec"]}}
        self._commit(user, Verb.PATCH, "Lease", LEASE, before=before, after=self.lease["spec"])
        return 200, self.lease

    def _effect(self, user: str, request: Request) -> tuple[int, Any]:
        body = json.loads(request.body)
        name = body["metadata"]["name"]
        self._commit(user, Verb.CREATE, "ConfigMap", name, before={}, after=body["data"])
        return 201, body

    def _commit(
        self,
        user: str,
        verb: Verb,
        kind: str,
        name: str,
        *,
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> None:
        self._revision += 1
        if kind == "Lease":
            assert self.lease is not None
            metadata = {**self.lease["metadata"], "resourceVersion": str(self._revision)}
            self.lease = {**self.lease, "metadata": metadata}
        self.journal.append(
            Revision(
                revision=self._revision,
                time=self.clock.monotonic(),
                user=user,
                verb=verb,
                code=200,
                kind=kind,
                namespace=NAMESPACE,
                name=name,
                changed={
                    path: (before.get(path), value)
                    for path, value in after.items()
                    if before.get(path) != value
                },
            )
        )


class FakeLeaseTransport:
    """One user's way to the server."""

    def __init__(self, server: FakeLeaseServer, user: str) -> None:
        self._server = server
        self._user = user
        self.cut = False
        """Whether nothing goes out or comes in any more."""

    def __str__(self) -> str:
        return "a scripted server"

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[_Answer] = loop.create_future()
        server = self._server
        server.asked.append((server.clock.monotonic(), self._user, request))
        fate = RequestFault(way=NEVER) if self.cut else server.weather(self._user, request)

        def answer(status: int, content: Any) -> None:
            if fate.back != NEVER:
                loop.call_later(fate.back, arrive, _Answer(status, content))

        def arrive(answer: _Answer) -> None:
            if not answered.done() and not self.cut:
                answered.set_result(answer)

        def carry_out() -> None:
            answer(*server.carry_out(self._user, request))

        def received() -> None:
            patience = float(request.query.get("timeout", "60s").removesuffix("s"))
            if fate.refusal:
                answer(fate.refusal, _status(fate.refusal, "Scripted"))
            elif fate.work > patience:
                loop.call_later(patience, answer, 504, _status(504, "Timeout"))
            else:
                loop.call_later(fate.work, carry_out)

        if fate.way <= MAX_DELAY:
            loop.call_later(fate.way, received)
        yield await answered


def _status(code: int, reason: str, **details: str) -> dict[str, Any]:
    words = {"reason": reason, "message": "as scripted", "details": details}
    return {"kind": "Status", "code": code, **words}
