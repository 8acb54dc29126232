"""What gets past the fence, what does not, and what it remembers."""

import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from libs.kube.client import Kube
from libs.kube.errors import KubeError, TimedOut
from libs.kube.lease.term import TERM_SECONDS, FencedTransport, NotLeading, Term
from libs.kube.resources import CONFIG_MAPS
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_lease_server import (
    LEASES,
    NAMESPACE,
    NEVER,
    FakeLeaseServer,
    RequestFault,
)

WANTED = {"metadata": {"name": "a"}, "data": {}}


class World:
    def __init__(self, sim: Sim) -> None:
        self.clock = sim.clock
        self.server = FakeLeaseServer(sim.clock)
        self.term = Term(lease="lease a/b", transitions=0, sent=0.0, clock=sim.clock)
        fenced = FencedTransport(self.server.transport("a"), self.term, clock=sim.clock)
        self.kube = Kube(fenced, manager="sluice", clock=sim.clock)

    async def change(self, *, within: float = 10.0) -> None:
        await self.kube.create(CONFIG_MAPS, WANTED, namespace=NAMESPACE, within=within)


def run_story(tell: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(sim: Sim) -> None:
        await tell(World(sim))

    run(main, seed=1)


def test_a_change_is_sent_until_the_end_of_the_term() -> None:
    async def tell(world: World) -> None:
        await world.clock.sleep(TERM_SECONDS - 0.001)
        await world.change()
        await world.clock.sleep(0.001)
        with pytest.raises(NotLeading, match=r"POST .*configmaps: not sent: lease a/b was not"):
            await world.change()
        assert isinstance(NotLeading("", ""), KubeError)
        assert len(world.server.asked) == 1

    run_story(tell)


def test_an_ended_term_sends_nothing_and_names_the_reason() -> None:
    async def tell(world: World) -> None:
        world.term.end("held by another now")
        world.term.end("the body is over")
        with pytest.raises(NotLeading, match="held by another now"):
            await world.change()
        assert not world.server.asked

    run_story(tell)


def test_reads_always_pass() -> None:
    async def tell(world: World) -> None:
        world.term.end("over")
        world.server.weather = lambda _user, _request: RequestFault(way=2.9, work=5.0, back=1.0)
        with pytest.raises(KubeError, match="as scripted"):
            await world.kube.request("GET", f"{LEASES}/b")
        assert "timeout" not in world.server.asked[0][2].query

    run_story(tell)


def test_a_change_has_at_most_three_seconds_on_both_sides() -> None:
    async def tell(world: World) -> None:
        await world.change(within=10)
        await world.change(within=0.5)
        with suppress(TimedOut):
            await world.change(within=0.0001)  # "0.000s", which is no limit
        world.server.weather = lambda _user, _request: RequestFault(way=NEVER)
        with pytest.raises(TimedOut, match="within 3 s"):
            await world.change(within=10)
        assert world.clock.monotonic() == pytest.approx(3, abs=0.2)
        asked = [request.query["timeout"] for _, _, request in world.server.asked]
        assert asked == ["3s", "0.500s", "3s", "3s"]

    run_story(tell)


@pytest.mark.parametrize(
    ("fate", "unsettled"),
    [
        (RequestFault(), 0.0),
        (RequestFault(refusal=409), 0.0),
        (RequestFault(refusal=429), 0.0),
        (RequestFault(refusal=500), 6.0),
        (RequestFault(way=NEVER), 3.0),
        (RequestFault(work=5.0), 3.0),
    ],
    ids=["done", "409", "429", "500", "lost", "hung"],
)
def test_requests_without_a_response_stay_in_flight(fate: RequestFault, unsettled: float) -> None:
    async def tell(world: World) -> None:
        world.server.weather = lambda _user, _request: fate
        with suppress(KubeError):
            await world.change()
        assert world.term.seconds_in_flight() == pytest.approx(unsettled, abs=0.1)
        await world.clock.sleep(6)
        assert world.term.seconds_in_flight() == 0

    run_story(tell)


def test_a_late_renewal_does_not_revive_a_term() -> None:
    async def tell(world: World) -> None:
        world.term.renew(2.0)
        assert world.term.remaining() == 10
        await world.clock.sleep(11)
        world.term.renew(9.0)
        assert world.term.remaining() == 0

    run_story(tell)


def test_responses_pass_unchanged() -> None:
    async def tell(world: World) -> None:
        body = await world.kube.request("POST", "/api/v1/configmaps", body=WANTED)
        assert json.loads(body) == WANTED

    run_story(tell)
