"""The TCP connection of nats-py, with TLS from the first byte, and the lines of the handshake.

With TLS nothing is ever sent in plain text: the handshake of TLS comes before the first line of
NATS, so a server without TLS gets no credentials.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from nats.aio.transport import TcpTransport
from nats.errors import Error as NatsError

from libs.bus.nats.tls_errors import describe_tls_error, is_wrong_name
from libs.bus.port import BusMisconfigured
from libs.runtime.fatal import describe_connect_error

CLOSE_SECONDS = 2.0
"""Seconds for what was sent and for the end of TLS, before a connection is dropped."""

LoadTls = Callable[[], ssl.SSLContext]
Dial = Callable[[], Awaitable[socket.socket]]
"""Return a connected socket to a server, or raise OSError with the reason."""


class ConnectFailed(NatsError):
    """A try to connect failed; the text is for people."""


class Transport(TcpTransport):
    """`load_tls` reads the files of TLS for this connection; without it there is no TLS.

    `dial` makes it instead of a connect to the address, whose name the server must have still.
    """

    def __init__(self, load_tls: LoadTls | None, dial: Dial | None = None) -> None:
        super().__init__()
        self._load_tls = load_tls
        self._dial = dial
        self._has_info = False

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        """Connect, with TLS if it is configured; verify the server's certificate and name."""
        try:
            async with asyncio.timeout(connect_timeout):
                reader, writer = await self._open(uri.hostname, uri.port, buffer_size)
        except TimeoutError as error:
            raise ConnectFailed(
                str(error) or f"no connection to {uri.netloc} within {connect_timeout:g} s"
            ) from None
        except UnicodeError:
            raise ConnectFailed(f"{uri.hostname[:80]!r} cannot be a host name") from None
        except OSError as error:
            raise ConnectFailed(describe_connect_error(error)) from None
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def _open(
        self, host: str, port: int, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._load_tls is None:
            return await self._connect(host, port, limit=limit)
        try:
            context = await asyncio.to_thread(self._load_tls)
            return await self._connect(
                host, port, limit=limit, ssl=context, ssl_shutdown_timeout=CLOSE_SECONDS
            )
        except BusMisconfigured as error:
            raise ConnectFailed(str(error)) from None
        except ssl.SSLError as error:
            names = await self._names(self._load_tls, host, port) if is_wrong_name(error) else ()
            raise ConnectFailed(describe_tls_error(error, asked=host, names=names)) from None
        except ConnectionResetError:
            raise ConnectFailed(
                f"{host}:{port} closed the connection during the TLS handshake: check that it is"
                f" the port of a NATS server that starts with TLS (tls handshake_first)"
            ) from None

    async def _connect(
        self, host: str, port: int, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._dial is None:
            return await asyncio.open_connection(host, port, **options)
        if "ssl" in options:
            options["server_hostname"] = host
        dialled = await self._dial()
        try:
            return await asyncio.open_connection(sock=dialled, **options)
        except BaseException:
            dialled.close()
            raise

    async def _names(self, load_tls: LoadTls, host: str, port: int) -> tuple[str, ...]:
        """Return the names in the certificate of a server whose name was refused.

        Nothing is sent to it, and its certificate is verified but for the name.
        """
        try:
            context = await asyncio.to_thread(load_tls)
            context.check_hostname = False
            _, writer = await self._connect(host, port, ssl=context)
        except (OSError, BusMisconfigured):
            return ()
        certificate: Any = writer.get_extra_info("peercert") or {}
        writer.transport.abort()
        return tuple(str(name) for _, name in certificate.get("subjectAltName", ()))

    async def connect_tls(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Called by nats-py when the server requires TLS after its first line."""
        if self._load_tls is None:
            raise ConnectFailed("the server requires TLS: use tls:// instead of nats:// as address")

    async def readline(self) -> bytes:
        """Return the next line that a step of the handshake waits for.

        nats-py takes any line for the end of the handshake, but a server sends PING while it waits
        for the verdict on the credentials.
        """
        while True:
            line = await self._line()
            if line.startswith(b"PING"):
                self.write(b"PONG\r\n")
                await self.drain()
            elif line.startswith(b"INFO ") and not self._has_info:
                self._has_info = True
                return line
            elif line.startswith((b"PONG", b"-ERR ")):
                return line
            elif not line.startswith((b"INFO ", b"+OK")):
                raise ConnectFailed(f"not the line of a NATS server: {line[:60]!r}")

    async def _line(self) -> bytes:
        try:
            line = await super().readline()
        except ValueError:
            raise ConnectFailed("the server sent a line that is too long") from None
        if not line:
            raise ConnectFailed(
                "the server closed the connection before it was established"
                + ("" if self._load_tls else "; if it requires TLS, use tls:// as address")
            )
        return line

    async def wait_closed(self) -> None:
        """Wait for the end of the connection, but not for a peer that no longer answers."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                with suppress(OSError):  # why it ended was reported to those who used it
                    await super().wait_closed()
        except TimeoutError:
            self._io_writer.transport.abort()  # pyright: ignore[reportOptionalMemberAccess]
