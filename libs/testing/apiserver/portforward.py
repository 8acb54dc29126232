"""Ports of pods, forwarded over a websocket as the API server and a kubelet do together.

What listens on a port of a pod is a server on this machine, which the test names.
"""

import asyncio
from contextlib import suppress

import msgspec
from aiohttp import WSMsgType, web
from aiohttp.web_request import BaseRequest

from libs.testing.apiserver.kinds.kind import ResourceKinds
from libs.testing.apiserver.kinds.status_errors import bad_request, not_found
from libs.testing.apiserver.objects.json import decoded, get_map
from libs.testing.apiserver.store import Store
from libs.testing.child_process import HOST

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = b"\x00", b"\x01"
_READ = 32 * 1024
"""Bytes of a message, as a kubelet copies them."""


class ForwardCall(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a pod."""

    namespace: str
    pod: str
    port: int


def forward_call(incoming: BaseRequest, path: str) -> ForwardCall | None:
    """Return which port a request to become a websocket asks for, if it does."""
    if incoming.headers.get("upgrade", "").lower() != "websocket":
        return None
    match path.split("/"):
        case ["", "api", "v1", "namespaces", namespace, "pods", pod, "portforward"]:
            port = int(incoming.query.get("ports", "0"))
            return ForwardCall(namespace=namespace, pod=pod, port=port)
        case _:
            return None


def check_pod(call: ForwardCall, store: Store, kinds: ResourceKinds) -> None:
    """Raise `StatusError` unless the pod exists and has a node."""
    kind = kinds.by_path("", "v1", "pods")
    if kind is None:
        raise LookupError("pods are always served")
    stored = store.of_kind(kind).get(call.namespace, call.pod)
    if stored is None:
        raise not_found(kind, call.pod)
    if not get_map(decoded(stored.raw), "spec").get("nodeName"):
        raise bad_request(f"pod {call.pod} does not have a host assigned")


async def forward(
    incoming: BaseRequest, call: ForwardCall, *, to: int | None
) -> web.WebSocketResponse:
    """Pass bytes on between the websocket and a server of this machine, until either ends."""
    websocket = web.WebSocketResponse(protocols=(_PROTOCOL,))
    await websocket.prepare(incoming)
    port = call.port.to_bytes(2, "little")
    for channel in (_DATA, _ERROR):
        await websocket.send_bytes(channel + port)
    try:
        if to is None:
            raise ConnectionRefusedError
        reader, writer = await asyncio.open_connection(HOST, to)
    except OSError:
        text = (
            f"error forwarding port {call.port} to pod 1a2b, uid : failed to connect to"
            f" localhost:{call.port} inside namespace: connect: connection refused"
        )
        await websocket.send_bytes(_ERROR + text.encode())
        await websocket.close()
        return websocket
    ways = {
        asyncio.create_task(_from_server(reader, websocket)),
        asyncio.create_task(_to_server(websocket, writer)),
    }
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        writer.close()
        await asyncio.gather(*ways, return_exceptions=True)
        with suppress(OSError):
            await writer.wait_closed()
        await websocket.close()
    return websocket


async def _from_server(reader: asyncio.StreamReader, websocket: web.WebSocketResponse) -> None:
    while content := await reader.read(_READ):
        await websocket.send_bytes(_DATA + content)


async def _to_server(websocket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    async for message in websocket:
        if message.type is WSMsgType.BINARY and message.data[:1] == _DATA:
            writer.write(message.data[1:])
            await writer.drain()
