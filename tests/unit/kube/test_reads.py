"""Lists in parts: what is asked for when, and what is held meanwhile."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from libs.kube.client import Kube
from libs.kube.reads import continue_token_of
from libs.kube.requests import Request
from libs.kube.resources import NODES
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_api_server import encode


class TrackedBody(bytes):
    """Keeps its number in `held` for as long as somebody has it."""

    number: int
    held: set[int]

    def __del__(self) -> None:
        self.held.discard(self.number)


class PagedServer:
    """A list of `count` parts, each of which takes a second to come and is held by nobody else."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, sim: Sim, *, count: int) -> None:
        self._sim = sim
        self._count = count
        self._asked = 0
        self._held: set[int] = set()
        self.held_meanwhile: list[set[int]] = []
        """As each part came in: of which others the bytes were still there."""

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator["PagedServer"]:
        self._asked = int(request.query.get("continue", "0"))
        yield self

    async def body(self) -> bytes:
        await self._sim.clock.sleep(1.0)
        self.held_meanwhile.append(set(self._held))
        number, last = self._asked, self._asked == self._count - 1
        metadata = {"resourceVersion": "7", "continue": "" if last else str(number + 1)}
        items = [{"metadata": {"name": f"n{number}", "uid": "u", "resourceVersion": "7"}}]
        made = TrackedBody(encode({"metadata": metadata, "items": items}))
        made.number, made.held = number, self._held
        self._held.add(number)
        return made

    def chunks(self) -> AsyncIterator[bytes]:
        raise AssertionError("a list is no stream")


def test_the_bytes_of_a_page_are_freed_before_the_next_arrives() -> None:
    async def main(sim: Sim) -> None:
        parts = PagedServer(sim, count=3)
        kube = Kube(parts, manager="sluice-test", clock=sim.clock)
        listed = await kube.list_all(NODES, limit=1)
        assert [node.metadata.name for node in listed.items] == ["n0", "n1", "n2"]
        assert parts.held_meanwhile == [set(), set(), set()]

    run(main, seed=1)


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"List","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1}]}',
        b'{"items":[{"metadata":{"continue":"no"}}],"kind":"List","metadata":{"continue":"x"}}',
    ],
    ids=["as of built-in kinds", "as of custom kinds"],
)
def test_the_continue_token_is_found_anywhere(body: bytes) -> None:
    assert continue_token_of(body, path="/apis/x") == "x"
