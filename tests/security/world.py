"""A server with permissions, two nodes and the services; attackers, and the victims' messages.

Streams are read through the scheduler; listeners record the messages that arrive at victims. Both
are compared after fences: messages of a bystander that are sent after the attack and take the same
paths, so that no test waits for a fixed time.
"""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from nats.aio.msg import Msg

from libs.bus.credentials import Credentials
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.nats.client import PatchedClient
from libs.bus.permissions import permissions
from libs.bus.port import FromSequence, StoredMessage
from libs.bus.server_config import Nkey, User, new_nkey, server_config
from libs.contracts import subjects
from libs.contracts.identities import Identity
from libs.contracts.subjects import COMMANDS, EVENTS, STATE, STREAMS
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.callout import TokenSignIn
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    B_DRIVER,
    B_TELEMETRY,
    BYSTANDER,
    IDENTITIES,
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


class _StreamReader:
    """Collect a stream up to its present end."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self.complete = False

    def began(self, recreated: bool, /) -> None:
        self.messages.clear()

    def received(self, message: StoredMessage) -> None:
        self.messages.append(message)

    def caught_up(self) -> None:
        self.complete = True

    def lost(self) -> None:
        pass


class World:
    """The server, streams with messages, and connections that end with the test."""

    def __init__(
        self,
        *,
        server: NatsServer,
        credentials: "KeyCredentials | TokenCredentials",
        ends: AsyncExitStack,
    ) -> None:
        self.server = server
        self.credentials = credentials
        self.deliveries: list[Delivery] = []
        self._ends = ends
        self._fences = 0
        self._listeners: list[RawClient] = []
        self.scheduler: NatsBus
        self.monitor: NatsBus
        """The connection that may list and close connections."""
        self._bystander: NatsBus

    def key_of(self, identity: Identity) -> Nkey:
        """Return the static key of this identity."""
        assert isinstance(self.credentials, KeyCredentials)
        return self.credentials.keys[identity]

    async def raw_client(self, identity: Identity) -> RawClient:
        """Return a plain client with this identity."""
        options = self.credentials.options(identity)
        raw = await RawClient.connect(self.server.url, identity, **options)
        self._ends.push_async_callback(raw.client.close)
        return raw

    async def bus(self, identity: Identity) -> NatsBus:
        """Return our own client with this identity."""
        return await self._ends.enter_async_context(
            connect(
                url=self.server.url,
                identity=identity,
                env=make_env(),
                credentials=self.credentials.of(identity),
            )
        )

    async def start(self) -> None:
        """Create the streams with messages that an attack could change, and start the listeners."""
        self.monitor = await self._ends.enter_async_context(self.credentials.run(self.server.url))
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
            reader = _StreamReader()
            pattern = subjects.cluster_pattern(plane, SCHEDULER.cluster)
            subscription = await self.scheduler.follow(
                stream, pattern, reader, start=FromSequence()
            )
            await eventually(lambda reader=reader: reader.complete)
            await subscription.close()
            kept[plane.plane] = [
                (each.sequence, each.subject, each.data)
                for each in reader.messages
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


class KeyCredentials:
    """A static key for each identity."""

    def __init__(self) -> None:
        self.keys = {identity: new_nkey() for identity in IDENTITIES}
        self.users = [
            User(identity=identity, public_key=key.public) for identity, key in self.keys.items()
        ]

    @property
    def static_key(self) -> str:
        """A public key in the configuration."""
        return self.keys[SCHEDULER].public

    def config(self) -> str:
        return server_config(self.users)

    def user(self, identity: Identity) -> str:
        """Return how the server names this identity's user."""
        return self.keys[identity].public

    def of(self, identity: Identity) -> Credentials:
        return Credentials(nkey_seed=self.keys[identity].seed)

    def options(self, identity: Identity) -> dict[str, str]:
        return {"nkeys_seed_str": self.keys[identity].seed}

    def run(self, url: str) -> AbstractAsyncContextManager[NatsBus]:
        """Return a connection that may monitor the others."""
        return connect(url=url, identity=SCHEDULER, env=make_env(), credentials=self.of(SCHEDULER))


class TokenCredentials:
    """A token for each identity, and a sign-in that knows them."""

    def __init__(self, folder: Path) -> None:
        self.sign_in = TokenSignIn(IDENTITIES)
        self._folder = folder

    @property
    def static_key(self) -> str:
        """A public key in the configuration."""
        return self.sign_in.nkey.public

    def config(self) -> str:
        return server_config([], sign_in=self.sign_in.settings())

    def user(self, identity: Identity) -> str:
        """Return how the server names this identity's user."""
        return str(self.sign_in.pods[self.sign_in.tokens[identity]])

    def of(self, identity: Identity) -> Credentials:
        token = self.sign_in.tokens[identity]
        file = self._folder / token
        file.write_text(token)
        return Credentials(token_file=str(file))

    def options(self, identity: Identity) -> dict[str, str]:
        return {"token": self.sign_in.tokens[identity]}

    def run(self, url: str) -> AbstractAsyncContextManager[NatsBus]:
        """Sign clients in; return the connection of sign-in, which may monitor the others."""
        return self.sign_in.run(url)


@asynccontextmanager
async def world(
    credentials: KeyCredentials | TokenCredentials, config: str = ""
) -> AsyncGenerator[World]:
    """Run a server with this configuration, by default the one that fits the credentials."""
    async with (
        NatsServer(config=config or credentials.config()) as server,
        AsyncExitStack() as ends,
    ):
        environment = World(server=server, credentials=credentials, ends=ends)
        await environment.start()
        yield environment


def one_account(users: Iterable[User]) -> str:
    """Configure the same users and permissions in one account together with the streams."""
    configured = [
        {
            "nkey": user.public_key,
            "permissions": {
                "publish": list(permissions(user.identity).publish),
                "subscribe": list(permissions(user.identity).subscribe),
            },
        }
        for user in users
    ]
    return f"authorization {{ users: {json.dumps(configured)} }}"
