"""Follow a stream on NATS in order, across interruptions.

This is an ephemeral push consumer without acknowledgements. nats-py's ordered consumer receives
nothing for twenty seconds after a server restart, and for longer if the stream was recreated.
"""

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

import msgspec

from libs.bus.nats.connection import Connection
from libs.bus.nats.jetstream import NANOSECONDS, ApiError, JetStream
from libs.bus.nats.pending import Msg
from libs.bus.port import (
    BusError,
    BusMisconfigured,
    BusUnavailable,
    Follower,
    FromSequence,
    LastPerSubject,
    StartFrom,
    StoredMessage,
    SubjectForbidden,
)
from libs.contracts import subjects
from libs.contracts.subjects import Stream
from libs.runtime.clock import Backoff, Clock
from libs.runtime.tasks import wait_up_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from libs.bus.nats.pending import NatsSubscription

log = logging.getLogger("sluice.bus")

HEARTBEAT_SECONDS = 2.0
MISSED_HEARTBEATS = 3
BEHIND_SECONDS = 10.0
"""How long a stream may be behind before the process is not ready: longer than a reconnect."""

_ACK = f"{subjects.JS_ACK}."


class _Created(msgspec.Struct, frozen=True):
    num_pending: int = 0
    error: ApiError | None = None


_created = msgspec.json.Decoder(_Created)


class StreamConsumer:
    """Follows one stream from `open` to `close`, in a task of its own."""

    def __init__(
        self,
        *,
        connection: Connection,
        jetstream: JetStream,
        clock: Clock,
        backoff: Backoff,
        stream: Stream,
        pattern: str,
        follower: Follower,
        start: StartFrom,
        on_close: "Callable[[StreamConsumer], None]",
    ) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._clock = clock
        self._backoff = backoff
        self._stream = stream
        self._pattern = pattern
        self._follower = follower
        self._start = start
        self._on_close = on_close
        self._created = ""
        """When the stream was created; a different time means that it was recreated."""
        self._last = 0
        """The last sequence that the follower received."""
        self._count = 0
        self._last_received = 0.0
        self._caught_up = False
        self._behind_since: float | None = clock.monotonic()
        """When the follower last had everything; None while it has."""
        self._broken = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._consumer = ""
        self._subscription: NatsSubscription | None = None
        self._unwatch = connection.link.watch(self._link_changed)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start following; wait while the bus is unavailable, raise other errors."""
        try:
            await self._subscribe()
        except (SubjectForbidden, BusMisconfigured):
            await self.close()
            raise
        except BusUnavailable as error:
            log.info("waiting to read stream %s: %s", self._stream.name, error)
            self._broken.set()
        self._task = asyncio.create_task(self._run(), name=f"follow {self._pattern}")
        self._task.add_done_callback(self._task_done)

    async def close(self) -> None:
        """Stop following."""
        self._on_close(self)
        unwatch, self._unwatch = self._unwatch, lambda: None
        unwatch()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._unsubscribe()

    def behind_reason(self) -> str | None:
        """Return why the follower lacks messages, or None if it was current a moment ago."""
        since = self._behind_since
        behind = 0.0 if since is None else self._clock.monotonic() - since
        if behind < BEHIND_SECONDS:
            return None
        return f"stream {self._stream.name} has not been read for {behind:.0f} s"

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._connection.fail(error)

    async def _run(self) -> None:
        while True:
            await self._until_broken()
            if self._behind_since is None:
                self._behind_since = self._clock.monotonic()
            self._follower.lost()
            await self._unsubscribe()
            while True:
                await self._pause()
                if not self._connection.link.is_up:
                    continue
                try:
                    await self._subscribe()
                except BusError as error:
                    log.info("waiting to read stream %s: %s", self._stream.name, error)
                    await self._unsubscribe()
                else:
                    self._backoff.reset()
                    break

    async def _pause(self) -> None:
        """Wait for the backoff, or until the link comes up."""
        self._reconnected.clear()
        await wait_up_to(self._backoff.next(), self._reconnected)

    async def _until_broken(self) -> None:
        while not self._broken.is_set():
            silence = self._clock.monotonic() - self._last_received
            left = HEARTBEAT_SECONDS * MISSED_HEARTBEATS - silence
            if left <= 0:
                return
            await wait_up_to(left, self._broken)

    def _link_changed(self, up: bool) -> None:
        if up:
            self._reconnected.set()
        else:
            self._broken.set()

    async def _subscribe(self) -> None:
        policy = await self._deliver_policy()
        self._broken.clear()
        self._count = 0
        self._caught_up = False
        self._last_received = self._clock.monotonic()
        self._consumer = f"{self._connection.identity.writer}-{secrets.token_hex(6)}"
        deliver = self._connection.inbox()
        self._subscription = await self._connection.subscribe(deliver, self._receive)
        config: dict[str, Any] = {
            "name": self._consumer,
            "deliver_subject": deliver,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "filter_subject": self._pattern,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * NANOSECONDS),
            "inactive_threshold": 30 * NANOSECONDS,
            "mem_storage": True,
            "num_replicas": 1,
            **policy,
        }
        answer = await self._jetstream.api(
            "CONSUMER",
            "CREATE",
            self._stream.name,
            self._consumer,
            self._pattern,
            body=msgspec.json.encode({"stream_name": self._stream.name, "config": config}),
        )
        created = _created.decode(answer.data)
        if created.error is not None:
            raise BusUnavailable(f"{self._stream.name}: no consumer: {created.error.description}")
        if created.num_pending == 0 and self._count == 0:
            self._set_caught_up()

    async def _deliver_policy(self) -> dict[str, Any]:
        """Return where to start, after calling `began` if the follower must start over."""
        info = await self._jetstream.info(self._stream)
        if info is None:
            await self._jetstream.recreate(self._stream)
            raise BusUnavailable(f"stream {self._stream.name} does not exist")
        is_new = info.created != self._created or info.state.last_seq < self._last
        recreated = is_new and bool(self._created)
        self._created = info.created
        if is_new:
            self._last = 0
        if isinstance(self._start, LastPerSubject):
            self._follower.began(recreated)
            return {"deliver_policy": "last_per_subject"}
        if is_new:
            if recreated:
                self._start = FromSequence(1)
            self._follower.began(recreated)
        first = self._last + 1 if self._last else self._start.sequence
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": first}

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        await subscription.close()
        if not self._connection.link.is_up:
            return
        try:
            await self._jetstream.api("CONSUMER", "DELETE", self._stream.name, self._consumer)
        except BusError as error:
            log.debug("consumer %s is left to expire: %s", self._consumer, error)

    async def _receive(self, msg: Msg) -> None:
        if self._broken.is_set():
            return
        self._last_received = self._clock.monotonic()
        if not msg.reply.startswith(_ACK):
            await self._control(msg)
            return
        # v1: <ack>.<stream>.<consumer>.<tries>.<stream seq>.<consumer seq>.<time>.<pending>
        # v2 puts domain and account before the stream, and a token at the end.
        tokens = msg.reply.split(".")
        index = 5 if len(tokens) == 9 else 7
        count = int(tokens[index + 1])
        if count != self._count + 1:
            self._broken.set()
            return
        self._count = count
        self._last = int(tokens[index])
        self._follower.received(
            StoredMessage(msg.subject, self._last, int(tokens[index + 2]) / NANOSECONDS, msg.data)
        )
        if not self._caught_up and tokens[index + 3] == "0":
            self._set_caught_up()

    async def _control(self, msg: Msg) -> None:
        """Handle a heartbeat or a flow-control request."""
        headers = msg.headers or {}
        if msg.reply:
            await self._answer_flow_control(msg.reply)
        elif stalled := headers.get("Nats-Consumer-Stalled"):
            await self._answer_flow_control(stalled)
        last = headers.get("Nats-Last-Consumer")
        if last is None:
            return
        if int(last) != self._count:
            self._broken.set()
        elif not self._caught_up:
            self._set_caught_up()

    async def _answer_flow_control(self, reply: str) -> None:
        try:
            await self._connection.publish(reply, b"")
        except BusUnavailable:
            self._broken.set()

    def _set_caught_up(self) -> None:
        self._caught_up = True
        self._behind_since = None
        self._follower.caught_up()
