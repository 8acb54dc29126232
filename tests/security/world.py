"""A server with permissions, two nodes and the services; attackers, and the victims' messages.

Streams are read through the scheduler; listeners record the messages that arrive at victims. Both
are compared after fences: messages of a bystander that are sent after the attack and take the same
paths, so that no test waits for a fixed time.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, Self

import msgspec
from nats.aio.msg import Msg

from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.client import PatchedClient
from libs.bus.port import FromSequence
from libs.bus.read_stream import read_stream
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.contracts.subjects import COMMANDS, EVENTS, STATE, STREAMS
from libs.testing.nats import NatsServer
from libs.testing.sign_in import TokenSignIn
from libs.testing.simulation import make_env
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    B_DRIVER,
    B_TELEMETRY,
    BYSTANDER,
    SCHEDULER,
    TELEMETRY_CLUSTER,
    beat,
    check,
    event,
    guessed_inbox,
    notification,
    slot,
    state,
    status,
)
from tests.support import eventually

KEPT = (
    (COMMANDS, subjects.Command),
    (COMMANDS, subjects.Check),
    (STATE, subjects.State),
    (EVENTS, subjects.Event),
)


class Delivery(NamedTuple):
    """A message that arrived at a victim."""

    by: Identity
    subject: str
    data: bytes


class RawClient:
    """A client of nats-py without our checks; it records the server's errors."""

    def __init__(self, identity: Identity, client: Any) -> None:
        self.identity = identity
        self.client = client
        self.violations: list[str] = []

    @classmethod
    async def connect(cls, url: str, identity: Identity, **credentials: str) -> Self:
        """Connect as this identity, with its inbox and these options of nats-py."""
        raw = cls(identity, PatchedClient())
        try:
            await raw.client.connect(
                url,
                **credentials,
                inbox_prefix=subjects.inbox(identity).encode(),
                error_cb=raw._on_error,
                allow_reconnect=False,
            )
        except BaseException:
            await raw.client.close()
            raise
        return raw

    async def _on_error(self, error: Exception) -> None:
        self.violations.append(str(error).lower())

    async def send(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: Any = None
    ) -> None:
        """Publish; when this returns, the server has read it and sent any error."""
        await self.client.publish(subject, data, reply=reply, headers=headers)
        await self.flush()

    async def ask(self, subject: str, data: bytes = b"", *, headers: Any = None) -> Msg:
        """Send a request, and return the answer."""
        return await self.client.request(subject, data, timeout=10, headers=headers)

    async def listen(self, *patterns: str) -> list[Msg]:
        """Return a list that collects the messages on these patterns from now on."""
        messages: list[Msg] = []

        async def receive(message: Msg) -> None:
            messages.append(message)

        for pattern in patterns:
            await self.client.subscribe(pattern, cb=receive)
        await self.flush()
        return messages

    async def flush(self) -> None:
        """Return when the server has read everything sent, and its messages have arrived."""
        # nats-py writes a PING before pending data: only the second PING follows it.
        await self.client.flush()
        await self.client.flush()


class World:
    """The server, streams with messages, and connections that end with the test."""

    def __init__(self, *, server: NatsServer, sign_in: TokenSignIn, ends: AsyncExitStack) -> None:
        self.server = server
        self.sign_in = sign_in
        self.deliveries: list[Delivery] = []
        self._ends = ends
        self._fences = 0
        self._listeners: list[RawClient] = []
        self.scheduler: NatsBus
        self.monitor: NatsBus
        """The connection that may list and close connections."""
        self._bystander: NatsBus

    async def raw_client(self, identity: Identity) -> RawClient:
        """Return a plain client with this identity."""
        token = self.sign_in.tokens[identity]
        raw = await RawClient.connect(self.server.url, identity, token=token)
        self._ends.push_async_callback(raw.client.close)
        return raw

    async def bus(self, identity: Identity) -> NatsBus:
        """Return our own client with this identity."""
        return await self._ends.enter_async_context(
            connect(
                url=self.server.url,
                identity=identity,
                env=make_env(),
                credentials=self.sign_in.credentials(identity),
                wait=30.0,  # a server that was lost asks sign-in only once that is back
            )
        )

    async def start(self) -> None:
        """Create the streams with messages that an attack could change, and start the listeners."""
        self.monitor = await self._ends.enter_async_context(self.sign_in.run(self.server.url))
        self.scheduler = await self.bus(SCHEDULER)
        for stream in STREAMS:
            await self.scheduler.ensure(stream)
        for owner in (A_DRIVER, A_TELEMETRY, B_DRIVER, B_TELEMETRY):
            await self.scheduler.store(COMMANDS, slot(owner), b"do this")
            await self.scheduler.store(COMMANDS, check(owner), b"is it so?")
        await self.scheduler.store(EVENTS, event(SCHEDULER, "step"), b"a step")
        self._bystander = await self.bus(BYSTANDER)
        victim = await self.raw_client(B_DRIVER)
        await victim.ask(state(B_DRIVER), b"my facts")
        await victim.ask(event(B_DRIVER), b"my event")
        await self._collect(victim, notification(slot(B_DRIVER)), notification(check(B_DRIVER)))
        await self._collect(victim, guessed_inbox(B_DRIVER))
        service = await self.raw_client(SCHEDULER)
        beats = subjects.cluster_pattern(subjects.Beat, SCHEDULER.cluster)
        await self._collect(service, beats, status(SCHEDULER), subjects.service("PING"))
        await self._collect(service, guessed_inbox(SCHEDULER))
        collector = await self.raw_client(TELEMETRY_CLUSTER)
        batches = subjects.cluster_pattern(subjects.Telemetry, SCHEDULER.cluster)
        await self._collect(collector, batches)

    async def _collect(self, victim: RawClient, *patterns: str) -> None:
        async def receive(message: Msg) -> None:
            self.deliveries.append(Delivery(victim.identity, message.subject, message.data))

        for pattern in patterns:
            await victim.client.subscribe(pattern, cb=receive)
        await victim.flush()
        self._listeners.append(victim)

    async def settle(self) -> None:
        """Return when all earlier messages and their consequences are stored and delivered.

        A fence passes each stream and core NATS twice, one after the other.
        """
        for _ in range(2):
            self._fences += 1
            mark = b"%d" % self._fences
            await self._bystander.store(STATE, state(BYSTANDER), mark)
            await self._bystander.store(EVENTS, event(BYSTANDER), mark)
            await self.scheduler.store(COMMANDS, slot(BYSTANDER), mark)
            for stream in STREAMS:
                await self.scheduler.request(
                    subjects.js_api("STREAM", "INFO", stream.name), b"", timeout=20
                )
            await self._bystander.publish(beat(BYSTANDER), mark)
            fence = Delivery(SCHEDULER, beat(BYSTANDER), mark)
            await eventually(lambda fence=fence: fence in self.deliveries)
            self.deliveries.remove(fence)
        for listener in self._listeners:
            await listener.flush()

    async def kept(self, *, but: tuple[str, ...] = ()) -> dict[str, list[tuple[int, str, bytes]]]:
        """Return messages and configurations of the streams, without the subjects `but`."""
        await self.settle()
        kept: dict[str, Any] = {}
        for stream, plane in KEPT:
            pattern = subjects.cluster_pattern(plane, SCHEDULER.cluster)
            kept[plane.plane] = [
                (each.sequence, each.subject, each.data)
                for each in await read_stream(self.scheduler, stream, pattern, start=FromSequence())
                if f".{BYSTANDER.node}." not in each.subject and each.subject not in but
            ]
        for stream in STREAMS:
            info = subjects.js_api("STREAM", "INFO", stream.name)
            answer = msgspec.json.decode(await self.scheduler.request(info, b"", timeout=20))
            kept[f"configuration of {stream.name}"] = answer["config"]
        return kept


def consumer(stream: str, name: str, **config: Any) -> bytes:
    """Return the body of a request for a consumer."""
    settings = {"name": name, "ack_policy": "none", "deliver_policy": "all", **config}
    return msgspec.json.encode({"stream_name": stream, "config": settings})


@asynccontextmanager
async def world(sign_in: TokenSignIn, config: str = "") -> AsyncGenerator[World]:
    """Run a server with this configuration, by default the one that fits the sign-in."""
    async with (
        NatsServer(config=config or sign_in.config()) as server,
        AsyncExitStack() as ends,
    ):
        environment = World(server=server, sign_in=sign_in, ends=ends)
        await environment.start()
        yield environment
