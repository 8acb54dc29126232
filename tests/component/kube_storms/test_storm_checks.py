"""The judge of the storms can fail: clients with one small fault each are found out.

With a client as it is, `test_storms` plays the same seeds.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.kube.indexed_store import Change, IndexedStore
from libs.kube.transport import Request, Response, Transport
from libs.testing.simulation import Sim, run
from tests.component.kube_storms.faults import READER, FaultInjector
from tests.component.kube_storms.storm import Storm, WrapTransport

SEEDS = range(4)


class DroppingTransport:
    """Every so often an event of a watch of nodes does not come through."""

    def __init__(self, wire: Transport) -> None:
        self._wire = wire
        self._heard = 0
        self.swallowed = 0

    def __str__(self) -> str:
        return str(self._wire)

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Response]:
        async with self._wire.open(request) as answer:
            watched = "watch" in request.query and request.path.endswith("/nodes")
            yield _Holed(answer, self) if watched else answer

    def drops_next(self) -> bool:
        self._heard += 1
        self.swallowed += self._heard % 7 == 0
        return self._heard % 7 == 0


class _Holed:
    def __init__(self, answer: Response, wire: DroppingTransport) -> None:
        self._answer = answer
        self._wire = wire
        self.status = answer.status
        self.headers = answer.headers

    async def body(self) -> bytes:
        return await self._answer.body()

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._answer.chunks():
            if not self._wire.drops_next():
                yield chunk


def test_a_client_that_swallows_an_event_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    wires: list[DroppingTransport] = []

    async def fine(self: FaultInjector, seconds: float) -> None:
        await self.clock.sleep(seconds)

    monkeypatch.setattr(FaultInjector, "run", fine)  # in which new lists would mend it

    def dressed(user: str, wire: Transport) -> Transport:
        if user != READER:
            return wire
        wires.append(DroppingTransport(wire))
        return wires[-1]

    storm = _played(0, dressed)
    assert sum(wire.swallowed for wire in wires) >= 1
    assert [each for each in storm.violations if each.startswith("nodes: n")] != []
    assert [each for each in storm.violations if each.startswith("nodes, as it was told: n")] != []


def test_a_cache_that_overlooks_deletions_in_a_list_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept(self: IndexedStore[Any], items: Iterable[Any], *, at: int) -> list[Change[Any]]:
        return [change for item in items for change in self.put(item)]

    monkeypatch.setattr(IndexedStore, "replace", kept)
    words = "\n".join(each for seed in SEEDS for each in _played(seed, _as_it_is).violations)
    assert "and on the server not there" in words
    assert "a probe says that all is there" in words


def _as_it_is(_: str, wire: Transport) -> Transport:
    return wire


def _played(seed: int, dressed: WrapTransport) -> Storm:
    played: list[Storm] = []

    async def main(sim: Sim) -> None:
        played.append(Storm(sim, wrap_transport=dressed))
        await played[0].run()

    run(main, seed=seed)
    return played[0]
