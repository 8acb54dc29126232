"""A server of one kind, small enough to be believed: it lists, watches, and fails as it is told."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from libs.kube.errors import Unavailable
from libs.kube.requests import Request
from libs.runtime.clock import Clock

encode = msgspec.json.encode

JsonObject = dict[str, Any]


def status_body(code: int, reason: str, message: str = "no", **details: Any) -> bytes:
    return encode(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    )


class CannedResponse:
    """An answer that is there already, or breaks off."""

    def __init__(
        self,
        code: int = 200,
        body: bytes = b"{}",
        *,
        headers: Mapping[str, str] | None = None,
        cut: bool = False,
        late: float = 0.0,
    ) -> None:
        self.status = code
        self.headers = headers or {}
        self._body = body
        self._cut = cut
        self._late = late

    async def body(self) -> bytes:
        await asyncio.sleep(self._late)
        if self._cut:
            raise Unavailable("GET", "the connection was cut")
        return self._body

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield self._body
        if self._cut:
            raise Unavailable("GET", "the connection was cut")


class FakeWatchStream:
    """The server's end of a watch; what is sent is cut anywhere."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, cut: Callable[[int], int]) -> None:
        self._queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._cut = cut
        self.over = False

    def send(self, kind: str, thing: JsonObject) -> None:
        self.raw(encode({"type": kind, "object": thing}) + b"\n")

    def raw(self, data: bytes) -> None:
        if self.over:
            return
        at = self._cut(len(data))
        for part in (data[:at], data[at:]):
            if part:
                self._queue.put_nowait(part)

    def end(self, error: Exception | None = None) -> None:
        self.over = True
        self._queue.put_nowait(error)

    async def body(self) -> bytes:
        raise AssertionError("a watch has no whole body")

    async def chunks(self) -> AsyncGenerator[bytes]:
        while (part := await self._queue.get()) is not None:
            if isinstance(part, Exception):
                raise part
            yield part


class FakeApiServer:
    """Config maps, with every state since the last compaction."""

    def __init__(self, clock: Clock, *, cut: Callable[[int], int] = lambda size: size // 2) -> None:
        self._clock = clock
        self._cut = cut
        self.revision = 10
        self.objects: dict[str, JsonObject] = {}
        self.states: dict[int, dict[str, JsonObject]] = {10: {}}
        self.log: list[tuple[int, str, JsonObject]] = []
        self.compacted = 0
        self.watches: list[FakeWatchStream] = []
        self.asked: list[Request] = []
        self.faults: list[Callable[[Request], CannedResponse | None]] = []
        """Each is asked for each request, and dropped once it has answered."""
        self.hanging = False
        self.uids = 0

    # What people do.

    def put(self, name: str, **data: str) -> JsonObject:
        held = self.objects.get(name)
        if held is None:
            self.uids += 1
        uid = held["metadata"]["uid"] if held else f"u{self.uids}"
        return self._commit("MODIFIED" if held else "ADDED", name, uid, data)

    def delete(self, name: str) -> JsonObject | None:
        held = self.objects.get(name)
        if held is None:
            return None
        return self._commit("DELETED", name, held["metadata"]["uid"], held["data"])

    def write_other_kind(self) -> None:
        """Something else on the server was written."""
        self.revision += 1
        self.states[self.revision] = dict(self.objects)

    def _commit(self, kind: str, name: str, uid: str, data: Mapping[str, str]) -> JsonObject:
        self.revision += 1
        thing: JsonObject = {
            "metadata": {"name": name, "uid": uid, "resourceVersion": str(self.revision)},
            "data": dict(data),
        }
        if kind == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = thing
        self.states[self.revision] = dict(self.objects)
        self.log.append((self.revision, kind, thing))
        for watch in self.watches:
            watch.send(kind, thing)
        return thing

    # What befalls it.

    def compact(self) -> None:
        self.compacted = self.revision
        self.log = []
        self.states = {self.revision: dict(self.objects)}

    def bookmark(self) -> None:
        for watch in self.watches:
            watch.send("BOOKMARK", {"metadata": {"resourceVersion": str(self.revision)}})

    def end_watches(self, error: Exception | None = None) -> None:
        for watch in self.watches:
            watch.end(error)

    def restore(self, revision: int) -> None:
        """From a backup: what came after never was."""
        self.objects = dict(self.states[revision])
        self.states = {at: state for at, state in self.states.items() if at <= revision}
        self.log = [entry for entry in self.log if entry[0] <= revision]
        self.revision = revision

    def fail(self, answer: CannedResponse, *, verb: str = "") -> None:
        """Answer the next request, or the next list or watch, so."""
        self.faults.append(lambda request: answer if verb in ("", _verb(request)) else None)

    # What it answers.

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[CannedResponse | FakeWatchStream]:
        self.asked.append(request)
        if self.hanging:
            await self._clock.sleep(1e6)
        for fault in self.faults:
            if (answer := fault(request)) is not None:
                self.faults.remove(fault)
                yield answer
                return
        if _verb(request) == "list":
            yield self.list_response(request.query)
        elif int(request.query["resourceVersion"]) < self.compacted:
            yield CannedResponse(410, status_body(410, "Expired"))
        else:
            async with self._watched(request.query) as watch:
                yield watch

    def list_response(self, query: Mapping[str, str], *, late: float = 0.0) -> CannedResponse:
        at, after = self.revision, ""
        if "continue" in query:
            text, _, after = query["continue"].partition("/")
            at = int(text)
            if at not in self.states:
                return CannedResponse(410, status_body(410, "Expired"))
        state = self.states[at]
        names = [name for name in sorted(state) if name > after]
        limit = int(query["limit"])
        metadata: JsonObject = {"resourceVersion": str(at)}
        if len(names) > limit:
            names = names[:limit]
            metadata["continue"] = f"{at}/{names[-1]}"
        items = [state[name] for name in names]
        return CannedResponse(body=encode({"metadata": metadata, "items": items}), late=late)

    @asynccontextmanager
    async def _watched(self, query: Mapping[str, str]) -> AsyncGenerator[FakeWatchStream]:
        watch = FakeWatchStream(self._cut)
        for revision, kind, thing in self.log:
            if revision > int(query["resourceVersion"]):
                watch.send(kind, thing)
        self.watches.append(watch)
        ending = asyncio.create_task(self._end(watch, float(query["timeoutSeconds"])))
        try:
            yield watch
        finally:
            self.watches.remove(watch)
            ending.cancel()
            await asyncio.wait({ending})

    async def _end(self, watch: FakeWatchStream, seconds: float) -> None:
        await self._clock.sleep(seconds)
        watch.end()


def _verb(request: Request) -> str:
    return "watch" if "watch" in request.query else "list"
