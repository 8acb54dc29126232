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
from libs.kube.transport import Request
from libs.testing.loop import Sim, run
from tests.unit.kube.lease_candidates import (
    Body,
    Candidate,
    act,
    busy,
    effects,
    idle,
    out_of_office,
    overlaps,
    successions,
    unsaid,
)
from tests.unit.kube.lease_server import (
    CALM,
    LEASE,
    LEASES,
    NAMESPACE,
    NEVER,
    Fate,
    LeaseServer,
    Wire,
)

pytestmark = pytest.mark.usefixtures(unsaid.__name__)


class Stage:
    """A server with an empty lease, and whoever comes."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = LeaseServer(sim.clock)
        self.server.carry_out("admin", creation())
        self.candidates: dict[str, Candidate] = {}
        self.wires: dict[str, Wire] = {}

    def enter(self, name: str, body: Body = idle) -> Candidate:
        self.wires[name] = self.server.transport(name)
        self.candidates[name] = Candidate(self.sim, name, self.wires[name], body)
        return self.candidates[name]

    async def until(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds - self.sim.clock.monotonic())

    async def stop(self) -> None:
        for candidate in self.candidates.values():
            await candidate.stop()
        assert not out_of_office(self.server.journal)
        assert not overlaps(list(self.candidates.values()))

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


def story(tell: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main(sim: Sim) -> None:
        stage = Stage(sim)
        await tell(stage)
        await stage.stop()

    run(main, seed=1)


def test_who_knows_no_leases_does_not_know_that_ours_is_gone() -> None:
    async def tell(stage: Stage) -> None:
        a = stage.enter("a")
        await stage.until(10.0)
        stage.server.weather = lambda _user, _request: Fate(refusal=404)
        await stage.until(60.0)
        assert [request.method for at, _, request in stage.server.asked if at > 20.0] == ["GET"] * (
            len([at for at, _, _ in stage.server.asked if at > 20.0])
        )
        assert not a.leads

    story(tell)


def test_one_candidate_does_not_lead_twice_at_once() -> None:
    async def tell(stage: Stage) -> None:
        a = stage.enter("a")
        for second in (0.0, 5.0):  # while it waits, and while it leads
            await stage.until(second)
            with pytest.raises(RuntimeError, match="already, or waits for it"):
                async with a.lease.held():
                    raise AssertionError("the record names us, but for another body")
        assert a.leads
        assert len(a.stays) == 1

    story(tell)


def test_a_lease_that_nobody_holds_is_taken_at_once() -> None:
    async def tell(stage: Stage) -> None:
        stage.enter("a")
        await stage.until(0.1)
        assert stage.candidates["a"].leads
        assert stage.server.holder == stage.candidates["a"].lease.holder

    story(tell)


@pytest.mark.parametrize(("duration", "wait"), [(15, 17), (5, 17), (30, 32)])
def test_a_record_that_does_not_change_is_taken_after_its_time_and_the_skew(
    duration: int, wait: int
) -> None:
    async def tell(stage: Stage) -> None:
        stage.server.delete()
        stage.server.carry_out("admin", creation("somebody", duration=duration))
        stage.enter("a")
        await stage.until(60)
        assert stage.taken()[1:] == [("a", wait)]
        assert stage.candidates["a"].terms[0].transitions == 1

    story(tell)


def test_a_lease_that_is_not_there_may_be_somebodys_and_is_waited_for_as_long() -> None:
    async def tell(stage: Stage) -> None:
        stage.server.delete()
        stage.enter("a")
        await stage.until(60)
        assert stage.taken() == [("a", 17)]

    story(tell)


def test_a_lease_is_renewed_every_two_to_three_seconds_and_never_given_up() -> None:
    async def tell(stage: Stage) -> None:
        leader, other = stage.enter("a"), stage.enter("b")
        await stage.until(1000)
        assert (len(leader.terms), len(other.terms)) == (1, 0)
        times = stage.renewed()[2:]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(gaps) >= 2.0
        assert max(gaps) <= 3.1

    story(tell)


def test_a_dead_leader_is_replaced_within_twenty_seconds() -> None:
    async def tell(stage: Stage) -> None:
        stage.enter("a", busy)
        await stage.until(1)
        for moment in (10.0, 11.0, 12.3):
            name = next(name for name, one in stage.candidates.items() if one.leads)
            heir = stage.enter(f"heir of {name}", busy)
            died = stage.sim.clock.monotonic() + moment
            await stage.until(died)
            stage.wires[name].cut = True
            await stage.candidates[name].stop()
            await stage.until(died + 20)
            assert heir.leads
            assert effects(stage.server.journal)[-1].user == heir.name

    story(tell)


def test_a_leader_that_goes_is_followed_at_once() -> None:
    async def tell(stage: Stage) -> None:
        leader, heir = stage.enter("a", busy), stage.enter("b", busy)
        await stage.until(20)
        await leader.stop()
        assert stage.sim.clock.monotonic() < 20.1
        assert stage.server.lease is not None
        assert stage.server.lease["spec"]["holderIdentity"] == ""
        assert stage.server.lease["spec"]["leaseDurationSeconds"] == 1
        await stage.until(21.5)
        assert heir.leads
        assert heir.terms[0].transitions == leader.terms[0].transitions + 1

    story(tell)


def test_a_leader_goes_only_when_nothing_that_it_sent_can_still_be_carried_out() -> None:
    """An effect on a slow way: 3 s until it arrives, 3 s until it is carried out."""

    async def tell(stage: Stage) -> None:
        slow = Fate(way=2.999, work=2.999)
        stage.server.weather = lambda _, request: CALM if LEASES in request.path else slow

        async def once(candidate: Candidate, term: Term, kube: Kube) -> None:
            await act(candidate, term, kube, 1)

        leader = stage.enter("a", once)
        await stage.until(1)
        stage.enter("b")
        await leader.stop()
        assert 6.0 <= stage.sim.clock.monotonic() < 6.1
        await stage.until(8)
        assert stage.candidates["b"].leads
        assert [round(entry.time) for entry in effects(stage.server.journal)] == [6]

    story(tell)


@pytest.mark.parametrize(
    "fate",
    [
        Fate(way=NEVER),
        Fate(back=NEVER),
        Fate(work=2.999, back=NEVER),
        Fate(work=10),
        Fate(refusal=500),
        Fate(refusal=429),
        Fate(refusal=403),
        Fate(refusal=409),
    ],
    ids=["lost", "unanswered", "late and unanswered", "hung", "500", "429", "403", "409"],
)
def test_the_body_ends_eight_seconds_after_the_last_good_renewal_was_sent(fate: Fate) -> None:
    """From the tenth second on nothing that the leader asks of the lease goes well."""

    async def tell(stage: Stage) -> None:
        leader = stage.enter("a", busy)
        good: list[float] = []

        def weather(user: str, request: Request) -> Fate:
            if stage.sim.clock.monotonic() < 10:
                if writes_lease(request):
                    good.append(stage.sim.clock.monotonic())
                # A slow answer must not make the term longer.
                return Fate(back=1.0) if LEASES in request.path else CALM
            return fate if LEASES in request.path and user == "a" else CALM

        stage.server.weather = weather
        await stage.until(9.9)
        stage.enter("b", busy)
        await stage.until(40)
        assert leader.stays[0].over == pytest.approx(good[-1] + 8)
        assert "was not renewed for 8 s" in leader.losses[0]
        changes = [entry for entry in stage.server.journal if entry.kind == "Lease"]
        last = max(entry.time for entry in changes if entry.user == "a")
        assert stage.taken()[-1][0] == "b"
        assert stage.taken()[-1][1] < last + 20

    story(tell)


def test_the_first_term_too_counts_from_the_sending() -> None:
    async def tell(stage: Stage) -> None:
        late = Fate(back=2.5)
        stage.server.weather = lambda _, request: late if writes_lease(request) else CALM
        leader = stage.enter("a")
        await stage.until(2.7)
        (claimed,) = stage.renewed()
        stage.wires["a"].cut = True
        await stage.until(20)
        assert leader.stays[0].over == pytest.approx(claimed + 8)

    story(tell)


def test_who_was_frozen_while_the_lease_was_given_does_not_begin_a_term_that_is_over() -> None:
    async def tell(stage: Stage) -> None:
        slow = Fate(back=1.0)
        stage.server.weather = lambda _, request: slow if writes_lease(request) else CALM
        candidate = stage.enter("a")
        await stage.until(0.5)
        candidate.machine.freeze(10)
        await stage.until(15)
        (stay,) = candidate.stays
        assert 11.5 < stay.begun < 13.5
        assert candidate.losses == []

    story(tell)


def test_only_the_renewal_that_the_record_shows_makes_the_term_longer() -> None:
    """The first after the tenth second is granted, without an answer; those after it are lost."""

    async def tell(stage: Stage) -> None:
        leader = stage.enter("a")
        tries: list[float] = []

        def weather(_user: str, request: Request) -> Fate:
            if stage.sim.clock.monotonic() < 10 or not writes_lease(request):
                return CALM
            tries.append(stage.sim.clock.monotonic())
            return Fate(back=NEVER) if len(tries) == 1 else Fate(way=NEVER)

        stage.server.weather = weather
        await stage.until(30)
        assert leader.stays[0].over == pytest.approx(tries[0] + 8)
        assert tries[1] < leader.stays[0].over

    story(tell)


def test_until_the_last_moment_all_that_is_sent_is_carried_out_before_another_leads() -> None:
    """Requests leave until the very end, and each takes as long as one ever can."""

    async def tell(stage: Stage) -> None:
        async def flood(candidate: Candidate, term: Term, kube: Kube) -> None:
            async def sender(number: int) -> None:
                await candidate.machine.sleep(number / 10)
                for count in range(1000):
                    with suppress(KubeError):
                        await act(candidate, term, kube, 1000 * number + count)
                    await candidate.machine.sleep(0.05)

            async with asyncio.TaskGroup() as senders:
                for number in range(30):
                    senders.create_task(sender(number))

        def weather(user: str, request: Request) -> Fate:
            if user == "a" and LEASES in request.path:
                return Fate(way=NEVER) if stage.sim.clock.monotonic() > 1 else CALM
            return CALM if LEASES in request.path else Fate(way=2.999, work=2.999)

        stage.server.weather = weather
        stage.enter("a", flood)
        await stage.until(0.5)
        stage.enter("b")
        await stage.until(40)
        last = effects(stage.server.journal)[-1]
        assert (last.user, round(last.time)) == ("a", 14)
        assert stage.taken()[-1] == ("b", 18)

    story(tell)


def test_a_leader_whose_lease_another_took_stops_at_its_next_renewal() -> None:
    async def tell(stage: Stage) -> None:
        leader = stage.enter("a")
        await stage.until(10)
        stage.server.delete()
        stage.server.carry_out("admin", creation("another"))
        await stage.until(13.2)
        assert not leader.leads
        assert "held by another now" in leader.losses[0]

    story(tell)


def test_a_lease_that_is_deleted_is_made_anew_and_nobody_else_gets_it() -> None:
    async def tell(stage: Stage) -> None:
        leader, other = stage.enter("a", busy), stage.enter("b", busy)
        for _ in range(5):
            await stage.sim.clock.sleep(20)
            transitions = stage.candidates["a"].terms[0].transitions
            stage.server.delete()
            await stage.sim.clock.sleep(3.2)
            assert stage.server.lease is not None
            assert stage.server.lease["spec"]["leaseTransitions"] == transitions
        assert (len(leader.stays), len(other.stays)) == (1, 0)
        assert stage.server.holder == leader.lease.holder

    story(tell)


def test_what_others_write_into_the_record_neither_ends_the_term_nor_is_lost() -> None:
    async def tell(stage: Stage) -> None:
        leader = stage.enter("a")
        await stage.until(10)
        assert stage.server.lease is not None
        labelled = {**stage.server.lease["metadata"], "resourceVersion": "77", "labels": {"a": "b"}}
        stage.server.lease = {**stage.server.lease, "metadata": labelled}
        await stage.until(60)
        assert len(leader.stays) == 1
        assert leader.leads
        assert stage.server.lease["metadata"]["labels"] == {"a": "b"}

    story(tell)


def test_a_frozen_leader_wakes_up_with_every_way_out_shut() -> None:
    async def tell(stage: Stage) -> None:
        leader, heir = stage.enter("a", busy), stage.enter("b", busy)
        await stage.until(10)
        leader.machine.freeze(60)
        await stage.until(32)
        assert heir.leads
        await stage.until(80)
        assert [entry.user for entry in effects(stage.server.journal, since=30)].count("a") == 0
        assert stage.server.holder == heir.lease.holder
        leader.stays.clear()  # by the wall it was in office all the time, by the record it was not

    story(tell)


def test_a_body_that_breaks_gives_its_error_and_the_lease() -> None:
    async def tell(stage: Stage) -> None:
        async def breaks(candidate: Candidate, term: Term, kube: Kube) -> None:
            await candidate.machine.sleep(1)
            raise ValueError("a fault in the body")

        leader = stage.enter("a", breaks)
        with pytest.raises(ValueError, match="a fault"):
            await leader.ended()
        assert stage.server.holder == ""

    story(tell)


def test_a_body_that_swallows_its_end_is_told_at_its_own() -> None:
    async def tell(stage: Stage) -> None:
        async def swallows(candidate: Candidate, term: Term, kube: Kube) -> None:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        leader = stage.enter("a", swallows)
        await stage.until(5)
        stage.wires["a"].cut = True
        await stage.until(20)
        assert len(leader.losses) == 1

    story(tell)


def test_a_fault_in_the_renewals_ends_the_term_and_leaves_no_zombie() -> None:
    async def tell(stage: Stage) -> None:
        leader = stage.enter("a")
        await stage.until(5)

        def broken(_user: str, request: Request) -> Fate:
            raise RuntimeError("nobody thought of this")

        stage.server.weather = broken
        await stage.until(8.1)
        assert "RuntimeError: nobody thought of this" in leader.losses[0]
        stage.server.weather = lambda _user, _request: CALM
        with pytest.raises(RuntimeError):
            await leader.ended()

    story(tell)
