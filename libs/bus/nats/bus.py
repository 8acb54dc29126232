"""`Bus` over one connection to NATS."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

from libs.bus.credentials import Credentials
from libs.bus.nats.connection import Connection
from libs.bus.nats.consumer import StreamConsumer
from libs.bus.nats.failures import ConnectFailures
from libs.bus.nats.jetstream import JetStream
from libs.bus.nats.pending import Msg
from libs.bus.nats.transport import Dial
from libs.bus.port import BusLink, Closable, Follower, MessageHandler, StartFrom
from libs.bus.rates import Admits
from libs.contracts.identities import Identity
from libs.contracts.subjects import Stream
from libs.runtime.clock import Backoff
from libs.runtime.env import Env


class NatsBus(JetStream):
    def __init__(
        self, *, connection: Connection, env: Env, opening: asyncio.Task[None] | None = None
    ) -> None:
        super().__init__(connection)
        self._opening = opening
        self._clock = env.clock
        self._random = env.random
        self._consumers: set[StreamConsumer] = set()

    @property
    def identity(self) -> Identity:
        return self._connection.identity

    @property
    def link(self) -> BusLink:
        return self._connection.link

    async def guard(self) -> NoReturn:
        """Run until the connection is closed for good, or cannot be made, then raise."""
        if self._opening is not None:
            await self._opening
        await self._connection.guard()

    def unready_reason(self) -> str | None:
        """Return why messages are not sent or not read, or None."""
        behind = (consumer.behind_reason() for consumer in self._consumers)
        return self._connection.unready_reason() or next(filter(None, behind), None)

    async def publish(self, subject: str, data: bytes) -> None:
        await self._connection.publish(subject, data)

    async def subscribe(
        self,
        pattern: str,
        handler: MessageHandler,
        *,
        group: str = "",
        admits: Admits | None = None,
    ) -> Closable:
        def received(msg: Msg) -> None:
            handler(msg.subject, msg.data, msg.reply)

        return await self.subscribe_messages(pattern, received, group=group, admits=admits)

    async def subscribe_messages(
        self,
        pattern: str,
        handler: Callable[[Msg], None],
        *,
        group: str = "",
        admits: Admits | None = None,
    ) -> Closable:
        """Subscribe, and receive messages with their headers. `handler` must not block."""

        async def received(msg: Msg) -> None:
            handler(msg)

        return await self._connection.subscribe(pattern, received, group=group, admits=admits)

    async def follow(
        self, stream: Stream, pattern: str, follower: Follower, *, start: StartFrom
    ) -> Closable:
        consumer = StreamConsumer(
            connection=self._connection,
            jetstream=self,
            clock=self._clock,
            backoff=Backoff(self._random, first=0.25, cap=10.0),
            stream=stream,
            pattern=pattern,
            follower=follower,
            start=start,
            on_close=self._consumers.discard,
        )
        self._consumers.add(consumer)
        await consumer.open()
        return consumer

    async def request(self, subject: str, data: bytes, *, timeout: float = 5.0) -> bytes:
        return (await self._connection.request(subject, data, timeout=timeout)).data

    async def request_all(self, subject: str, data: bytes, *, within: float) -> list[bytes]:
        return [msg.data for msg in await self._connection.request_all(subject, data, within)]


@asynccontextmanager
async def connect(
    *,
    url: str,
    identity: Identity,
    env: Env,
    credentials: Credentials = Credentials(),  # noqa: B008 - frozen
    wait: float = 10.0,
    spread: float = 0.0,
    failures: ConnectFailures | None = None,
    patience: float | None = None,
    dial: Dial | None = None,
) -> AsyncGenerator[NatsBus]:
    """Connect to NATS, and drain the connection at the end of the block.

    Wait up to `wait` seconds for the server, or begin the block after `patience` seconds without a
    connection, which is then made in the background. `spread` is the time over which the fleet
    spreads its connects after a loss, in seconds. `failures` tells why there is no connection yet.
    `dial` makes connections where the address cannot be reached from here.
    """
    connection = Connection(
        url=url,
        identity=identity,
        env=env,
        credentials=credentials,
        spread=spread,
        failures=failures or ConnectFailures(env.clock),
        dial=dial,
    )
    if patience is None:
        try:
            await connection.open(wait=wait)
            yield NatsBus(connection=connection, env=env)
        finally:
            await connection.close()
        return
    opening = asyncio.create_task(connection.open(wait=math.inf), name="connect to NATS")
    try:
        ended, _ = await asyncio.wait({opening}, timeout=patience)
        if ended:
            opening.result()
        yield NatsBus(connection=connection, env=env, opening=opening)
    finally:
        opening.cancel()
        await asyncio.wait({opening})
        with suppress(asyncio.CancelledError):
            opening.exception()  # `guard` has raised it
        await connection.close()
