"""nats-py's client with fixes for defects that leave a connection or its callers hanging.

Each was observed with nats-py 2.16.0; delete a method here when a later release has the fix.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.errors import ConnectionClosedError, FlushTimeoutError, NoServersError
from nats.errors import Error as NatsError
from nats.protocol.parser import PERMISSIONS_ERR, STALE_CONNECTION

from libs.bus.nats.tls_errors import describe_tls_error
from libs.bus.nats.transport import ConnectFailed, Dial, LoadTls, Transport
from libs.bus.rates import Admits

if TYPE_CHECKING:
    from types import CoroutineType


class ServerError(NatsError):
    """The server ended the session with this error."""


class _Nothing:
    """What is awaited for a message that is dropped: less than a coroutine each."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


_DROPPED: Final = _Nothing()
_UNUSED_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class PatchedClient(Client):
    """With `load_tls`, every connection starts with TLS. All arguments are called for each try."""

    def __init__(
        self,
        *,
        load_tls: LoadTls | None = None,
        read_token: Callable[[], Awaitable[str]] | None = None,
        dial: Dial | None = None,
    ) -> None:
        super().__init__()
        self._load_tls = load_tls
        self._dial = dial
        self._read_token = read_token
        self._admits: dict[int, Admits] = {}
        """By the id of a subscription."""

    def admit(self, subscription: Any, admits: Admits) -> None:
        """Drop the messages of a subscription whose subjects are not admitted, unread."""
        known: Any = self._subs
        self._admits = {sid: each for sid, each in self._admits.items() if sid in known}
        self._admits[subscription._id] = admits

    async def flush(self, timeout: int = 10) -> None:
        """Return when the server has processed everything that was sent before."""
        # The original sends its PING before pending data, and waits with `wait_for`, which in
        # Python 3.11 swallows a cancellation that coincides with the answer.
        if self.is_closed or self._transport is None:
            raise ConnectionClosedError
        if not self.is_reading:
            await self._flush_pending()
            return
        self._transport.writelines(self._pending)
        self.discard_unsent()
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._send_ping(answer)
                await answer
        except TimeoutError:
            raise FlushTimeoutError from None

    async def _process_pong(self) -> None:
        # The original also sets the result of a flush that was cancelled or timed out. The error
        # ends the reading task, and the client stays connected without receiving anything.
        if self._pongs:
            waiting: Any = self._pongs.pop(0)
            if not waiting.done():
                waiting.set_result(True)
            self._pongs_received += 1
            self._pings_outstanding = 0

    def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> "CoroutineType[Any, Any, None]":
        # First of all: each further step costs more than this question, and a flood has no end.
        admits = self._admits.get(sid)
        if admits is not None and not admits(bytes(subject)):
            return cast("CoroutineType[Any, Any, None]", _DROPPED)
        # The original decodes the subject and the reply outside of any `try`: one byte that is not
        # UTF-8 ends the reading task. A readable subject lets the reader count and name it.
        if not (subject.isascii() and reply.isascii()):
            subject, reply = _as_utf8(subject), _as_utf8(reply)
        return super()._process_msg(sid, subject, reply, data, headers)

    def _process_headers(self, headers: Any) -> "CoroutineType[Any, Any, dict[str, str] | None]":
        # The same for an inline status, and for headers that are shorter than their first line.
        return self._read_headers(headers) if headers else super()._process_headers(None)

    async def _read_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(_as_utf8(headers))
        except Exception as error:  # noqa: BLE001  (whatever it is, the next message must be read)
            await self._error_cb(error)
            return None

    async def _connect_to_server(self, s: Any) -> None:
        # The original does not close the socket of an attempt that failed in the handshake, and
        # would read the token on the event loop.
        if self._transport is not None:
            self._transport.close()
        s.last_attempt = time.monotonic()
        if self._read_token is not None:
            self.options["token"] = await self._read_token()
        self._transport = Transport(self._load_tls, self._dial)
        timeout = self.options["connect_timeout"]
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, timeout)

    async def _process_connect_init(self) -> None:
        # The original bounds each of its steps instead of the handshake, and after a failure leaves
        # a connection on which the server may still accept the credentials.
        timeout = self.options["connect_timeout"]
        try:
            async with asyncio.timeout(timeout):
                await super()._process_connect_init()
        except TimeoutError as error:
            self._drop_transport()
            why = str(error) or f"the server did not accept the connection within {timeout:g} s"
            raise ConnectFailed(why) from None
        except ssl.SSLError as error:  # TLS refuses a client only after its own handshake
            self._drop_transport()
            raise ConnectFailed(describe_tls_error(error)) from None
        except BaseException:
            self._drop_transport()
            raise

    @property
    def ssl_context(self) -> ssl.SSLContext:
        # The original reads the system's certificates for each connection, on the event loop. Our
        # transport has started TLS before, and ignores this context.
        return _UNUSED_TLS

    def _drop_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # The original also connects to the addresses that a server names, which are not configured:
        # they may not be trusted with a token, and those of servers that are gone stay for good.
        await super()._process_info({**info, "connect_urls": None}, initial_connection)

    async def _process_err(self, err_msg: str) -> None:
        # The original closes for good after any error, as when a token expires or is refused.
        if PERMISSIONS_ERR in err_msg or STALE_CONNECTION in err_msg:
            await super()._process_err(err_msg)
            return
        error = ServerError(f"nats: {err_msg}")
        self._err = error
        await self._error_cb(error)
        await self._process_op_err(error)

    async def close(self) -> None:
        """Close the connection and end all tasks."""
        # The original's reconnect task loses a cancellation that coincides with the server's
        # answer, and then keeps a closed client connected or reconnecting forever.
        await super().close()
        while running := {task for task in self._running_tasks() if not task.done()}:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=1.0)
            self._status = Client.CLOSED
        if self._transport is not None:
            self._transport.close()

    def _running_tasks(self) -> Iterator["asyncio.Task[Any]"]:
        tasks: Any = (
            self._reconnection_task,
            self._reading_task,
            self._ping_interval_task,
            self._flusher_task,
        )
        return (task for task in tasks if task not in (None, asyncio.current_task()))

    @property
    def was_started(self) -> bool:
        """Whether `close` can be called; the original's raises before the first connect."""
        return self._flush_queue is not None

    @property
    def is_reading(self) -> bool:
        """Whether the reading task runs; it ends silently on an unexpected error."""
        task: Any = self._reading_task
        return task is not None and not task.done()

    @property
    def has_reconnect_task(self) -> bool:
        """Whether the reconnecting task runs; it ends silently on an unexpected error."""
        task: Any = self._reconnection_task
        return task is not None and not task.done()

    @property
    def reconnect_error(self) -> BaseException | None:
        """The unexpected error that ended the reconnecting task, or None."""
        task: Any = self._reconnection_task
        if task is None or not task.done() or task.cancelled():
            return None
        return task.exception()

    def discard_unsent(self) -> None:
        """Discard the data that was not written to the socket."""
        self._pending = []
        self._pending_data_size = 0


def _as_utf8(raw: bytes) -> bytes:
    """Return the bytes with everything that is not UTF-8 written as `\\xff`."""
    return raw.decode(errors="backslashreplace").encode()


async def dial(client: PatchedClient, options: dict[str, Any], *, within: float) -> bool:
    """Try each server once and return whether the client is connected.

    nats-py can lose a cancellation while it connects, and reports by a callback instead of an
    exception why each server failed.
    """
    connecting = asyncio.create_task(client.connect(**options), name="nats connect")
    try:
        await asyncio.wait({connecting}, timeout=within)
        if connecting.done():
            connecting.result()
    except NoServersError:
        return False  # the client's `error_cb` got each reason
    else:
        return client.is_connected
    finally:
        while not connecting.done():  # again and again, because a cancellation may get lost
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=1.0)
        if not connecting.cancelled():
            connecting.exception()
