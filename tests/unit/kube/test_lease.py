"""The lease, case by case: when it is taken, kept, lost and released, to the second."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from libs.kube.client import Kube
from libs.kube.errors import KubeError
from libs.kube.lease.term import Term
from libs.kube.requests import Request
from libs.testing.simulation import Sim, run
from tests.unit.kube.fake_lease_server import (
    LEASE,
    LEASES,
    NAMESPACE,
    NEVER,
    NO_FAULT,
    FakeLeaseServer,
    FakeLeaseTransport,
    RequestFault,
)
from tests.unit.kube.lease_candidates import (
    Body,
    LeaseCandidate,
    effects,
    effects_out_of_term,
    idle,
    overlapping_tenures,
    silence_logs,
    successions,
    write_effect,
    write_forever,
)

pytestmark = pytest.mark.usefixtures(silence_logs.__name__)


class World:
    """A server with an empty lease, and whoever comes."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = FakeLeaseServer(sim.clock)
        self.server.carry_out("admin", creation())
        self.candidates: dict[str, LeaseCandidate] = {}
        self.wires: dict[str, FakeLeaseTransport] = {}

    def add_candidate(self, name: str, body: Body = idle) -> LeaseCandidate:
        self.wires[name] = self.server.transport(name)
        self.candidates[name] = LeaseCandidate(self.sim, name, self.wires[name], body)
        return self.candidates[name]

    async def until(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds - self.sim.clock.monotonic())

    async def stop(self) -> None:
        for candidate in self.candidates.values():
            await candidate.stop()
        assert not effects_out_of_term(self.server.journal)
        assert not overlapping_tenures(list(self.candidates.values()))

    def taken(self) -> list[tuple[str, int]]:
        return [(entry.user, round(entry.time)) for entry in successions(self.server.journal)]

    def renewed(self) -> list[float]:
        """When the requests were sent that wrote to the lease."""
        return [at for at, _, request in self.server.asked if writes_lease(request)]


def creation(holder: str = "", *, duration: int = 15) -> Request:
    spec = f'{{"holderIdentity": "{holder}", "leaseDurationSeconds": {duration}}}'
    body = f'{{"metadata": {{"name": "{LEASE}", "namespace": "{NAMESPACE}"}}, "spec": {spec}}}'
    return Request(method="POST", path=LEASES, body=body.encode())


def writes_lease(request: Request) -> bool:
    return request.path.startswith(LEASES) and request.method != "GET"


def run_story(tell: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(sim: Sim) -> None:
        stage = World(sim)
        await tell(stage)
        await stage.stop()

    run(main, seed=1)


def test_a_server_without_leases_does_not_prove_that_the_lease_is_gone() -> None:
    async def tell(stage: World) -> None:
        a = stage.add_candidate("a")
        await stage.until(10.0)
        stage.server.weather = lambda _user, _request: RequestFault(refusal=404)
        await stage.until(60.0)
        assert [request.method for at, _, request in stage.server.asked if at > 20.0] == ["GET"] * (
            len([at for at, _, _ in stage.server.asked if at > 20.0])
        )
        assert not a.is_leading

    run_story(tell)


def test_a_candidate_cannot_lead_twice_at_once() -> None:
    async def tell(stage: World) -> None:
        a = stage.add_candidate("a")
        for second in (0.0, 5.0):  # while it waits, and while it leads
            await stage.until(second)
            with pytest.raises(RuntimeError, match="already holds lease"):
                async with a.lease.lead():
                    raise AssertionError("the record names us, but for another body")
        assert a.is_leading
        assert len(a.stays) == 1

    run_story(tell)


def test_a_free_lease_is_taken_at_once() -> None:
    async def tell(stage: World) -> None:
        stage.add_candidate("a")
        await stage.until(0.1)
        assert stage.candidates["a"].is_leading
        assert stage.server.holder == stage.candidates["a"].lease.holder

    run_story(tell)


@pytest.mark.parametrize(("duration", "wait"), [(15, 17), (5, 17), (30, 32)])
def test_an_unchanged_record_is_taken_after_its_duration_and_the_skew(
    duration: int, wait: int
) -> None:
    async def tell(stage: World) -> None:
        stage.server.delete()
        stage.server.carry_out("admin", creation("somebody", duration=duration))
        stage.add_candidate("a")
        await stage.until(60)
        assert stage.taken()[1:] == [("a", wait)]
        assert stage.candidates["a"].terms[0].transitions == 1

    run_story(tell)


def test_a_missing_lease_is_waited_for_like_an_unchanged_one() -> None:
    async def tell(stage: World) -> None:
        stage.server.delete()
        stage.add_candidate("a")
        await stage.until(60)
        assert stage.taken() == [("a", 17)]

    run_story(tell)


def test_a_lease_is_renewed_every_two_to_three_seconds() -> None:
    async def tell(stage: World) -> None:
        leader, other = stage.add_candidate("a"), stage.add_candidate("b")
        await stage.until(1000)
        assert (len(leader.terms), len(other.terms)) == (1, 0)
        times = stage.renewed()[2:]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(gaps) >= 2.0
        assert max(gaps) <= 3.1

    run_story(tell)


def test_a_dead_leader_is_replaced_within_twenty_seconds() -> None:
    async def tell(stage: World) -> None:
        stage.add_candidate("a", write_forever)
        await stage.until(1)
        for moment in (10.0, 11.0, 12.3):
            name = next(name for name, one in stage.candidates.items() if one.is_leading)
            heir = stage.add_candidate(f"heir of {name}", write_forever)
            died = stage.sim.clock.monotonic() + moment
            await stage.until(died)
            stage.wires[name].cut = True
            await stage.candidates[name].stop()
            await stage.until(died + 20)
            assert heir.is_leading
            assert effects(stage.server.journal)[-1].user == heir.name

    run_story(tell)


def test_a_released_lease_is_taken_at_once() -> None:
    async def tell(stage: World) -> None:
        leader, heir = (
            stage.add_candidate("a", write_forever),
            stage.add_candidate("b", write_forever),
        )
        await stage.until(20)
        await leader.stop()
        assert stage.sim.clock.monotonic() < 20.1
        assert stage.server.lease is not None
        assert stage.server.lease["spec"]["holderIdentity"] == ""
        assert stage.server.lease["spec"]["leaseDurationSeconds"] == 1
        await stage.until(21.5)
        assert heir.is_leading
        assert heir.terms[0].transitions == leader.terms[0].transitions + 1

    run_story(tell)


def test_the_release_waits_for_requests_in_flight() -> None:
    """An effect on a slow way: 3 s until it arrives, 3 s until it is carried out."""

    async def tell(stage: World) -> None:
        slow = RequestFault(way=2.999, work=2.999)
        stage.server.weather = lambda _, request: NO_FAULT if LEASES in request.path else slow

        async def once(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
            await write_effect(candidate, term, kube, 1)

        leader = stage.add_candidate("a", once)
        await stage.until(1)
        stage.add_candidate("b")
        await leader.stop()
        assert 6.0 <= stage.sim.clock.monotonic() < 6.1
        await stage.until(8)
        assert stage.candidates["b"].is_leading
        assert [round(entry.time) for entry in effects(stage.server.journal)] == [6]

    run_story(tell)


@pytest.mark.parametrize(
    "fate",
    [
        RequestFault(way=NEVER),
        RequestFault(back=NEVER),
        RequestFault(work=2.999, back=NEVER),
        RequestFault(work=10),
        RequestFault(refusal=500),
        RequestFault(refusal=429),
        RequestFault(refusal=403),
        RequestFault(refusal=409),
    ],
    ids=["lost", "unanswered", "late and unanswered", "hung", "500", "429", "403", "409"],
)
def test_the_body_ends_eight_seconds_after_sending_the_last_successful_renewal(
    fate: RequestFault,
) -> None:
    """From the tenth second on nothing that the leader asks of the lease goes well."""

    async def tell(stage: World) -> None:
        leader = stage.add_candidate("a", write_forever)
        good: list[float] = []

        def weather(user: str, request: Request) -> RequestFault:
            if stage.sim.clock.monotonic() < 10:
                if writes_lease(request):
                    good.append(stage.sim.clock.monotonic())
                # A slow answer must not make the term longer.
                return RequestFault(back=1.0) if LEASES in request.path else NO_FAULT
            return fate if LEASES in request.path and user == "a" else NO_FAULT

        stage.server.weather = weather
        await stage.until(9.9)
        stage.add_candidate("b", write_forever)
        await stage.until(40)
        assert leader.stays[0].over == pytest.approx(good[-1] + 8)
        assert "was not renewed for 8 s" in leader.losses[0]
        changes = [entry for entry in stage.server.journal if entry.kind == "Lease"]
        last = max(entry.time for entry in changes if entry.user == "a")
        assert stage.taken()[-1][0] == "b"
        assert stage.taken()[-1][1] < last + 20

    run_story(tell)


def test_the_first_term_starts_when_the_claim_is_sent() -> None:
    async def tell(stage: World) -> None:
        late = RequestFault(back=2.5)
        stage.server.weather = lambda _, request: late if writes_lease(request) else NO_FAULT
        leader = stage.add_candidate("a")
        await stage.until(2.7)
        (claimed,) = stage.renewed()
        stage.wires["a"].cut = True
        await stage.until(20)
        assert leader.stays[0].over == pytest.approx(claimed + 8)

    run_story(tell)


def test_a_process_frozen_during_the_claim_does_not_start_an_expired_term() -> None:
    async def tell(stage: World) -> None:
        slow = RequestFault(back=1.0)
        stage.server.weather = lambda _, request: slow if writes_lease(request) else NO_FAULT
        candidate = stage.add_candidate("a")
        await stage.until(0.5)
        candidate.machine.freeze(10)
        await stage.until(15)
        (stay,) = candidate.stays
        assert 11.5 < stay.begun < 13.5
        assert candidate.losses == []

    run_story(tell)


def test_only_the_renewal_in_the_record_extends_the_term() -> None:
    """The first after the tenth second is granted, without an answer; those after it are lost."""

    async def tell(stage: World) -> None:
        leader = stage.add_candidate("a")
        tries: list[float] = []

        def weather(_user: str, request: Request) -> RequestFault:
            if stage.sim.clock.monotonic() < 10 or not writes_lease(request):
                return NO_FAULT
            tries.append(stage.sim.clock.monotonic())
            return RequestFault(back=NEVER) if len(tries) == 1 else RequestFault(way=NEVER)

        stage.server.weather = weather
        await stage.until(30)
        assert leader.stays[0].over == pytest.approx(tries[0] + 8)
        assert tries[1] < leader.stays[0].over

    run_story(tell)


def test_every_change_of_a_term_is_carried_out_before_another_leads() -> None:
    """Requests leave until the very end, and each takes as long as one ever can."""

    async def tell(stage: World) -> None:
        async def flood(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
            async def sender(number: int) -> None:
                await candidate.machine.sleep(number / 10)
                for count in range(1000):
                    with suppress(KubeError):
                        await write_effect(candidate, term, kube, 1000 * number + count)
                    await candidate.machine.sleep(0.05)

            async with asyncio.TaskGroup() as senders:
                for number in range(30):
                    senders.create_task(sender(number))

        def weather(user: str, request: Request) -> RequestFault:
            if user == "a" and LEASES in request.path:
                return RequestFault(way=NEVER) if stage.sim.clock.monotonic() > 1 else NO_FAULT
            return NO_FAULT if LEASES in request.path else RequestFault(way=2.999, work=2.999)

        stage.server.weather = weather
        stage.add_candidate("a", flood)
        await stage.until(0.5)
        stage.add_candidate("b")
        await stage.until(40)
        last = effects(stage.server.journal)[-1]
        assert (last.user, round(last.time)) == ("a", 14)
        assert stage.taken()[-1] == ("b", 18)

    run_story(tell)


def test_a_leader_whose_lease_was_taken_stops_at_the_next_renewal() -> None:
    async def tell(stage: World) -> None:
        leader = stage.add_candidate("a")
        await stage.until(10)
        stage.server.delete()
        stage.server.carry_out("admin", creation("another"))
        await stage.until(13.2)
        assert not leader.is_leading
        assert "held by another now" in leader.losses[0]

    run_story(tell)


def test_a_deleted_lease_is_recreated_by_its_leader() -> None:
    async def tell(stage: World) -> None:
        leader, other = (
            stage.add_candidate("a", write_forever),
            stage.add_candidate("b", write_forever),
        )
        for _ in range(5):
            await stage.sim.clock.sleep(20)
            transitions = stage.candidates["a"].terms[0].transitions
            stage.server.delete()
            await stage.sim.clock.sleep(3.2)
            assert stage.server.lease is not None
            assert stage.server.lease["spec"]["leaseTransitions"] == transitions
        assert (len(leader.stays), len(other.stays)) == (1, 0)
        assert stage.server.holder == leader.lease.holder

    run_story(tell)


def test_foreign_metadata_in_the_record_is_kept() -> None:
    async def tell(stage: World) -> None:
        leader = stage.add_candidate("a")
        await stage.until(10)
        assert stage.server.lease is not None
        labelled = {**stage.server.lease["metadata"], "resourceVersion": "77", "labels": {"a": "b"}}
        stage.server.lease = {**stage.server.lease, "metadata": labelled}
        await stage.until(60)
        assert len(leader.stays) == 1
        assert leader.is_leading
        assert stage.server.lease["metadata"]["labels"] == {"a": "b"}

    run_story(tell)


def test_a_frozen_leader_cannot_send_after_waking() -> None:
    async def tell(stage: World) -> None:
        leader, heir = (
            stage.add_candidate("a", write_forever),
            stage.add_candidate("b", write_forever),
        )
        await stage.until(10)
        leader.machine.freeze(60)
        await stage.until(32)
        assert heir.is_leading
        await stage.until(80)
        assert [entry.user for entry in effects(stage.server.journal, since=30)].count("a") == 0
        assert stage.server.holder == heir.lease.holder
        leader.stays.clear()  # by the wall it was in office all the time, by the record it was not

    run_story(tell)


def test_a_failing_body_raises_its_error_and_releases_the_lease() -> None:
    async def tell(stage: World) -> None:
        async def breaks(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
            await candidate.machine.sleep(1)
            raise ValueError("a fault in the body")

        leader = stage.add_candidate("a", breaks)
        with pytest.raises(ValueError, match="a fault"):
            await leader.ended()
        assert stage.server.holder == ""

    run_story(tell)


def test_a_body_that_swallows_the_cancellation_gets_not_leading() -> None:
    async def tell(stage: World) -> None:
        async def swallows(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        leader = stage.add_candidate("a", swallows)
        await stage.until(5)
        stage.wires["a"].cut = True
        await stage.until(20)
        assert len(leader.losses) == 1

    run_story(tell)


def test_an_unexpected_error_in_a_renewal_ends_the_term() -> None:
    async def tell(stage: World) -> None:
        leader = stage.add_candidate("a")
        await stage.until(5)

        def broken(_user: str, request: Request) -> RequestFault:
            raise RuntimeError("nobody thought of this")

        stage.server.weather = broken
        await stage.until(8.1)
        assert "RuntimeError: nobody thought of this" in leader.losses[0]
        stage.server.weather = lambda _user, _request: NO_FAULT
        with pytest.raises(RuntimeError):
            await leader.ended()

    run_story(tell)
