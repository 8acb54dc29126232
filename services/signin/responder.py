"""Answer the requests of nats-server in order, while each is still worth an answer; those of hosts
that used up their share of refusals come after all others.

The server waits ten seconds for an answer, and the client tries again after a refusal or a silence.
So what has waited too long is dropped before it costs anything, and the queue never grows beyond
what can be answered in time.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from libs.bus.callout import CalloutKeys, SignInRequest, TooOld, Unreadable
from libs.bus.port import BusError
from libs.bus.sessions import session_name
from libs.contracts.identities import Writer
from libs.runtime.env import Env
from libs.runtime.logs import logger
from services.signin.claims import Holder, Refused, claimed_subject, shown
from services.signin.gate import Gate, Unreviewed
from services.signin.host_shares import HostShares
from services.signin.key_files import KeyFiles
from services.signin.metrics import SignInMetrics
from services.signin.refusal_log import RefusalLog
from services.signin.session_tags import SessionTag
from services.signin.signatures import UnknownKey, unverified_payload

MAX_AGE: Final = 9.0
"""Seconds after which a request is not answered; the server waits for 10."""
MAX_QUEUE: Final = 16_384
"""Requests that wait; more cannot be answered in time."""
MAX_QUEUED: Final = 64 << 20
"""Bytes of the requests that wait."""
MAX_LATE: Final = 1024
"""Requests of hosts beyond their shares that wait."""
MAX_WAITING: Final = 1024
"""Clients that wait for the API server at the same time."""
ON_ARRIVAL: Final = 1.0
"""Seconds after its arrival in which a request is too old because of a wrong clock."""
WARN_PERIOD: Final = 60.0
TURN: Final = 0.02
"""Seconds for which requests are answered before the event loop does other work."""

Send = Callable[[str, bytes], Awaitable[None]]
"""Send an answer to a reply subject, or raise `BusError`."""

_log = logger()


class _Received(msgspec.Struct, frozen=True):
    at: float
    data: bytes
    xkey: str
    reply: str


class _Opened(msgspec.Struct, frozen=True):
    received: _Received
    keys: CalloutKeys
    request: SignInRequest


class Responder:
    def __init__(
        self, *, keys: KeyFiles, gate: Gate, send: Send, env: Env, metrics: SignInMetrics
    ) -> None:
        self._keys = keys
        self._gate = gate
        self._send = send
        self._clock = env.clock
        self._metrics = metrics
        self._refusals = RefusalLog(env.clock)
        self._shares = HostShares(env.clock)
        self._queue: deque[_Received] = deque()
        self._queued = 0
        self._late: deque[_Opened] = deque()
        self._added = asyncio.Event()
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._warned_at = -WARN_PERIOD

    def received(self, data: bytes, xkey: str, reply: str) -> None:
        """Queue a request; drop it if too much waits already."""
        if len(self._queue) >= MAX_QUEUE or self._queued + len(data) > MAX_QUEUED:
            self._metrics.dropped("queue")
            return
        self._queue.append(_Received(self._clock.monotonic(), data, xkey, reply))
        self._queued += len(data)
        self._metrics.waiting(len(self._queue))
        self._added.set()

    async def run(self) -> None:
        """Answer what was received until cancelled."""
        try:
            while True:
                await self._added.wait()
                self._added.clear()
                turn_ends = self._clock.monotonic() + TURN
                while self._queue or self._late:
                    await self._serve_next()
                    if self._clock.monotonic() >= turn_ends:
                        await self._clock.sleep(0)
                        turn_ends = self._clock.monotonic() + TURN
        finally:
            for task in self._waiting:
                task.cancel()
            if self._waiting:
                await asyncio.wait(list(self._waiting))

    async def drain(self) -> None:
        """Wait until everything received is answered."""
        while self._queue or self._late or self._waiting:
            await self._clock.sleep(0.05)

    def _take(self) -> _Received:
        received = self._queue.popleft()
        self._queued -= len(received.data)
        self._metrics.waiting(len(self._queue))
        return received

    async def _serve_next(self) -> None:
        try:
            if self._queue:
                opened = self._open(self._take())
                if opened is None:
                    return
                if self._shares.is_used_up(opened.request.host):
                    self._put_off(opened)
                    return
            else:
                opened = self._late.popleft()
                if self._is_old(opened.received):
                    self._metrics.dropped("old")
                    return
            await self._serve(opened)
        except Exception:  # noqa: BLE001  (whatever it is, the next client is served)
            self._metrics.dropped("failed")
            _log.exception("a client was not answered")

    def _put_off(self, opened: _Opened) -> None:
        """Serve a request when no other waits; of too many, those that came first are kept."""
        if len(self._late) >= MAX_LATE:
            self._metrics.dropped("queue")
        else:
            self._late.append(opened)

    async def _serve(self, opened: _Opened) -> None:
        found = self._gate.judge(opened.request)
        if isinstance(found, Holder | Refused):
            await self._answer(opened, found)
        elif len(self._waiting) >= MAX_WAITING:
            self._metrics.dropped("queue")
        else:
            task = asyncio.create_task(self._serve_later(opened, found), name="waiting client")
            self._waiting[task] = None
            task.add_done_callback(self._waited)

    def _open(self, received: _Received) -> _Opened | None:
        if self._is_old(received):
            self._metrics.dropped("old")
            return None
        try:
            with self._metrics.cpu("open"):
                keys, request = self._keys.open(
                    received.data, server_xkey=received.xkey, max_age=MAX_AGE
                )
        except TooOld as error:
            self._metrics.dropped("old")
            if self._clock.monotonic() - received.at < ON_ARRIVAL:
                self._warn(f"{error}: set the clocks of nats-server's machine and of this one")
        except Unreadable as error:
            self._metrics.dropped("unreadable")
            self._warn(str(error))
        else:
            return _Opened(received, keys, request)
        return None

    def _warn(self, why: str) -> None:
        """Log why a request cannot be answered, once a minute."""
        now = self._clock.monotonic()
        if now >= self._warned_at + WARN_PERIOD:
            self._warned_at = now
            _log.warning("a request of nats-server cannot be answered", why=why)

    async def _serve_later(self, opened: _Opened, missing: UnknownKey | Unreviewed) -> None:
        found = await self._gate.wait(opened.request, missing)
        if self._is_old(opened.received):
            self._metrics.dropped("old")
        else:
            await self._answer(opened, found)

    def _waited(self, task: asyncio.Task[None]) -> None:
        del self._waiting[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._metrics.dropped("failed")
            _log.error("a client was not answered", exc_info=error)

    def _is_old(self, received: _Received) -> bool:
        return self._clock.monotonic() - received.at > MAX_AGE

    async def _answer(self, opened: _Opened, found: Holder | Refused) -> None:
        request = opened.request
        with self._metrics.cpu("answer"):
            if isinstance(found, Holder):
                answer = _grant(opened.keys, request, found)
            else:
                answer = opened.keys.refuse(request, found.reason)
        try:
            await self._send(opened.received.reply, answer)
        except BusError:
            self._metrics.dropped("unsent")
            return
        if isinstance(found, Holder):
            self._metrics.granted()
            self._log_grant(request, found)
        else:
            self._metrics.refused(found.cause)
            self._shares.refused(request.host)
            self._refusals.refused(
                found,
                host=shown(request.host),
                claimed=claimed_subject(unverified_payload(request.token)),
            )

    def _log_grant(self, request: SignInRequest, holder: Holder) -> None:
        is_person = holder.identity.writer is Writer.CTL
        (_log.info if is_person else _log.debug)(
            "signed in",
            identity=str(holder.identity),
            pod=holder.pod_name,
            token=holder.token_id,
            host=shown(request.host),
        )


def _grant(keys: CalloutKeys, request: SignInRequest, holder: Holder) -> bytes:
    return keys.grant(
        request,
        holder.identity,
        session=session_name(holder.identity, str(SessionTag.of(holder))),
        expires=int(holder.session_ends),
    )
