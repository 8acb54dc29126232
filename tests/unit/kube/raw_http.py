"""Raw responses in front of a server, for what no fault of the simulated one produces."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from libs.kube.errors import Unavailable
from libs.kube.requests import Request, Response, Transport


class RawResponse(msgspec.Struct):
    """A response of these bytes, `late` seconds after its head; `cut` at their end."""

    status: int = 200
    content: bytes = b"{}"
    headers: Mapping[str, str] = {}
    cut: bool = False
    late: float = 0.0

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes]:
        await asyncio.sleep(self.late)
        yield self.content
        if self.cut:
            raise Unavailable("GET", "the connection was cut")


def ok(body: object) -> RawResponse:
    return RawResponse(content=msgspec.json.encode(body))


def refusal(code: int, reason: str, message: str = "no", **details: Any) -> RawResponse:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return RawResponse(code, msgspec.json.encode({**body, "details": details}))


def verb_of(request: Request) -> str:
    if request.method != "GET":
        return request.method
    if "watch" in request.query:
        return "watch"
    return "list" if request.path.endswith("s") else "get"


class ScriptedTransport:
    """Record requests; answer them from the script, and pass the rest to `server`."""

    def __init__(self, server: Transport | None = None) -> None:
        self.server = server
        self.requests: list[Request] = []
        self.open_now = 0
        self._script: list[tuple[str, RawResponse]] = []

    def __str__(self) -> str:
        return "https://api:6443"

    def reply(self, *responses: RawResponse, verb: str = "") -> None:
        """Answer the next requests, or the next of that verb, with these."""
        self._script.extend((verb, response) for response in responses)

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        self.requests.append(request)
        self.open_now += 1
        try:
            for entry in self._script:
                if entry[0] in ("", verb_of(request)):
                    self._script.remove(entry)
                    yield entry[1]
                    return
            assert self.server is not None, f"no response for {request.method} {request.path}"
            async with self.server.open(request) as response:
                yield response
        finally:
            self.open_now -= 1
