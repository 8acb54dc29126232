"""Streams to ports of pods through the API server, as `kubectl port-forward` makes them.

The API server passes a websocket on to the kubelet, and that to the port. What a pod's stream is
read from and written to is one end of a pair of sockets in this process: no port is opened on this
machine, to which its other users could connect.
"""

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from libs.kube.aiohttp import aiohttp
from libs.kube.errors import TimedOut
from libs.kube.requests import Request
from libs.kube.resources import PODS

if TYPE_CHECKING:
    from libs.kube.http import HttpTransport

PROTOCOL: Final = "v4.channel.k8s.io"
OPEN_SECONDS: Final = 5.0
"""A pod whose node does not answer is given up for another one after this time."""
_DATA, _ERROR = 0, 1
_PREFIX: Final = 2
"""The first bytes of each channel: the port."""
_MOST_TEXT: Final = 4096
_READ: Final = 2**16


class BrokenStream(Exception):
    """The other side does not speak the protocol."""


class Channels:
    """What the messages of a websocket to one port say: each begins with the number of a channel.

    One channel carries the bytes of the pod, both ways, the other what went wrong at the pod.
    """

    def __init__(self) -> None:
        self._prefix = {_DATA: _PREFIX, _ERROR: _PREFIX}
        self._text = bytearray()

    @property
    def problem(self) -> str:
        """What went wrong at the pod, as the kubelet says it."""
        return " ".join(self._text.decode(errors="replace").split())

    def received(self, message: bytes) -> bytes:
        """Return the pod's bytes in a message, if any; keep what went wrong."""
        if not message:
            return b""
        channel, content = message[0], message[1:]
        if channel not in self._prefix:
            raise BrokenStream(f"a message of channel {channel}, which nobody asked for")
        skipped = min(len(content), self._prefix[channel])
        self._prefix[channel] -= skipped
        content = content[skipped:]
        if channel == _DATA:
            return content
        self._text += content[: _MOST_TEXT - len(self._text)]
        return b""

    @staticmethod
    def sent(content: bytes) -> bytes:
        """Return the message that carries bytes to the pod."""
        return bytes((_DATA,)) + content


class PortForwards:
    """Streams to pods, which last until the end of the block."""

    def __init__(self, transport: "HttpTransport", *, user_agent: str) -> None:
        self._transport = transport
        self._headers = {"user-agent": user_agent}
        self._passing: set[asyncio.Task[None]] = set()
        self.problem = ""
        """What broke the last stream that did not just end; empty if none did."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        passing = set(self._passing)
        for task in passing:
            task.cancel()
        if passing:
            await asyncio.wait(passing)

    async def open(self, pod: str, port: int, *, namespace: str) -> socket.socket:
        """Return a connected socket to the port of a pod; raise `KubeError` if there is no way.

        That nothing listens there shows only later: the stream ends, and `problem` says so.
        """
        request = Request(
            method="GET",
            path=PODS.path(namespace=namespace, name=pod, subresource="portforward"),
            query={"ports": str(port)},
            headers=self._headers,
        )
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                websocket = await self._transport.websocket(request, protocol=PROTOCOL)
        except TimeoutError:
            why = f"no way to the pod from {self._transport} within {OPEN_SECONDS:g} s"
            raise TimedOut(str(request), f"{why}; is its node Ready?") from None
        self.problem = ""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        passing = self._pass_on(websocket, reader, writer)
        task = asyncio.create_task(passing, name=f"forward a port of {pod}")
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        await asyncio.sleep(0)  # from now on it closes both, even if it is cancelled at once
        return theirs

    async def _pass_on(
        self,
        websocket: "aiohttp.ClientWebSocketResponse[bool]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes on both ways until either side ends."""
        channels = Channels()
        ways = {
            asyncio.create_task(_to_pod(reader, websocket)),
            asyncio.create_task(_from_pod(websocket, writer, channels)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Each end is closed whatever comes meanwhile, as another cancellation.
            for way in ways:
                way.cancel()
            writer.close()  # what is buffered is written first
            try:
                ended = await asyncio.gather(*ways, return_exceptions=True)
                broken = [str(each) for each in ended if isinstance(each, BrokenStream)]
                self.problem = channels.problem or "".join(broken) or self.problem
            finally:
                with suppress(OSError, aiohttp.ClientError):
                    await websocket.close()


async def _to_pod(
    reader: asyncio.StreamReader, websocket: "aiohttp.ClientWebSocketResponse[bool]"
) -> None:
    while content := await reader.read(_READ):
        await websocket.send_bytes(Channels.sent(content))


async def _from_pod(
    websocket: "aiohttp.ClientWebSocketResponse[bool]",
    writer: asyncio.StreamWriter,
    channels: Channels,
) -> None:
    async for message in websocket:
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise BrokenStream(f"a message of type {message.type.name}: {message.data}"[:200])
        writer.write(channels.received(message.data))
        await writer.drain()
