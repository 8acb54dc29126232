"""The server on a loopback port.

Without TLS kubectl sends no token. So a path may begin with `/as/` and a token instead.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from aiohttp import web
from aiohttp.web_request import BaseRequest

from libs.kube.requests import Request
from libs.testing.apiserver.objects.json import encoded
from libs.testing.apiserver.portforward import ForwardCall, forward, forward_call
from libs.testing.apiserver.replies import JSON, Reply
from libs.testing.apiserver.server import ApiServer
from libs.testing.apiserver.status import StatusError
from libs.testing.apiserver.watches import ConnectionCut
from libs.testing.child_process import HOST, ReservedPort

_AS = "/as/"
_UNAUTHORIZED = StatusError(401, "Unauthorized", "Unauthorized")


class HttpFrontend:
    def __init__(self, server: ApiServer, *, port: int) -> None:
        self._server = server
        self.url = f"http://{HOST}:{port}"

    def kubeconfig(self, directory: Path, user: str) -> Path:
        """Write a kubeconfig with a token of this user, and return its path."""
        token = self._server.token_of(user)
        cluster = {"name": "simulated", "cluster": {"server": f"{self.url}{_AS}{token}"}}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": user}}],
            "current-context": "simulated",
        }
        path = directory / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(json.dumps(content))
        return path

    async def handle(self, incoming: BaseRequest) -> web.StreamResponse:
        token, path = _token_and_path(incoming)
        user = self._server.user_of(token)
        if not self._server.running:
            return _cut(incoming)
        if user is None:
            body = encoded(_UNAUTHORIZED.status())
            return web.Response(status=401, body=body, content_type=JSON)
        try:
            if (call := forward_call(incoming, path)) is not None:
                return await self._forward(incoming, call, user=user)
            reply = await self._server.handle(await _read(incoming, path), user=user)
        except ConnectionCut:
            return _cut(incoming)
        try:
            return await _send(incoming, reply)
        finally:
            await reply.close()

    async def _forward(
        self, incoming: BaseRequest, call: ForwardCall, *, user: str
    ) -> web.StreamResponse:
        try:
            await self._server.check_forward(call, user=user)
        except StatusError as refusal:
            body = encoded(refusal.status())
            return web.Response(status=refusal.code, body=body, content_type=JSON)
        return await forward(incoming, call, to=self._server.listening.get(call))


@asynccontextmanager
async def serve_http(server: ApiServer, *, port: int = 0) -> AsyncGenerator[HttpFrontend]:
    """Listen on a port that stays reserved until the end."""
    reserved = ReservedPort(port)
    frontend = HttpFrontend(server, port=reserved.number)
    # A disconnect cancels a watch; a write that has begun goes on in the server.
    low = web.Server(frontend.handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(low, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, reserved.number, reuse_address=True).start()
        yield frontend
    finally:
        await runner.cleanup()
        reserved.release()


def _token_and_path(incoming: BaseRequest) -> tuple[str, str]:
    """Return the token of a request, and its path without the token."""
    scheme, _, token = incoming.headers.get("authorization", "").partition(" ")
    path = incoming.path
    if path.startswith(_AS):
        token, _, rest = path.removeprefix(_AS).partition("/")
        return token, f"/{rest}"
    return (token if scheme.lower() == "bearer" else ""), path


async def _read(incoming: BaseRequest, path: str) -> Request:
    return Request(
        method=incoming.method,
        path=path,
        query=dict(incoming.query),
        headers=_lowered(incoming.headers),
        body=await incoming.read(),
    )


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _send(incoming: BaseRequest, reply: Reply) -> web.StreamResponse:
    if reply.body is not None:
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.enable_chunked_encoding()
    await response.prepare(incoming)
    try:
        async for chunk in reply.chunks():
            await response.write(chunk)
        await response.write_eof()
    except ConnectionCut:
        if incoming.transport is not None:
            # Announce a chunk that never arrives completely.
            incoming.transport.write(b'ffff\r\n{"type"')
            incoming.transport.close()
    except ConnectionError:
        pass  # the client has disconnected
    return response


def _cut(incoming: BaseRequest) -> web.StreamResponse:
    if incoming.transport is not None:
        incoming.transport.abort()
    return cast("web.StreamResponse", web.Response())
