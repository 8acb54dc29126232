"""The lease: when it is acquired, renewed, lost and released; requests within a term."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest

from libs.kube.client import Kube
from libs.kube.errors import KubeError, TimedOut
from libs.kube.lease.term import TERM_SECONDS, FencedTransport, NotLeading, Term
from libs.kube.requests import Request, Response
from libs.kube.resources import LEASES
from libs.testing.apiserver.faults import (
    Delay,
    DropWatch,
    Fault,
    FaultEffect,
    Hang,
    RefuseRequest,
    SlowBody,
)
from tests.unit.kube.lease_candidates import (
    LEASE,
    NAMESPACE,
    LeaseCandidate,
    LeaseWorld,
    idle,
    silence_logs,
    write_effect,
    write_forever,
)
from tests.unit.kube.world import CONFIG_MAP_VIEWS, DEAD, World, in_virtual_time, manifest

pytestmark = pytest.mark.usefixtures(silence_logs.__name__)

UNANSWERED = SlowBody(1, DEAD)
"""The request takes effect, but its response is lost."""
SLOWEST = (Delay(2.999, where="way"), Delay(2.999))
"""The longest delays on the way to the server, and in the server."""


def late(seconds: float) -> SlowBody:
    """Delay the response by so many seconds."""
    return SlowBody(10_000, seconds)


def taken(world: LeaseWorld) -> list[tuple[str, int]]:
    return [(entry.user, round(world.time_of(entry))) for entry in world.successions()]


def lease_writes(candidate: LeaseCandidate) -> list[float]:
    """Return when the candidate sent its writes of the lease."""
    return [
        time
        for time, request in candidate.machine.requests
        if "/leases" in request.path and request.method != "GET"
    ]


@in_virtual_time(LeaseWorld)
async def test_a_server_without_leases_does_not_prove_that_the_lease_is_gone(
    world: LeaseWorld,
) -> None:
    leader = world.add_candidate("a")
    await world.until(10.0)
    world.fail(RefuseRequest(404))
    await world.until(60.0)
    late_requests = [request for time, request in leader.machine.requests if time > 20.0]
    assert {request.method for request in late_requests} == {"GET"}
    assert not leader.is_leading


@in_virtual_time(LeaseWorld)
async def test_a_candidate_cannot_lead_twice_at_once(world: LeaseWorld) -> None:
    leader = world.add_candidate("a")
    for second in (0.0, 5.0):  # while it waits, and while it leads
        await world.until(second)
        with pytest.raises(RuntimeError, match="already holds lease"):
            async with leader.elector.lead():
                pytest.fail("a second body")
    assert leader.is_leading
    assert len(leader.tenures) == 1


@in_virtual_time(LeaseWorld)
async def test_a_free_lease_is_taken_at_once(world: LeaseWorld) -> None:
    leader = world.add_candidate("a")
    await world.until(0.1)
    assert leader.is_leading
    assert (await world.lease_spec())["holderIdentity"] == leader.elector.holder


@pytest.mark.parametrize(("duration", "wait"), [(None, 17), (15, 17), (5, 17), (30, 32)])
@in_virtual_time(LeaseWorld, with_lease=False)
async def test_a_missing_or_unchanged_lease_is_taken_after_its_duration_and_the_skew(
    world: LeaseWorld, duration: int | None, wait: int
) -> None:
    if duration is not None:
        await world.create_lease(holderIdentity="another", leaseDurationSeconds=duration)
    leader = world.add_candidate("a")
    await world.until(60)
    assert taken(world)[-1] == ("a", wait)
    assert leader.terms[0].transitions == (0 if duration is None else 1)


@in_virtual_time(LeaseWorld)
async def test_a_lease_is_renewed_every_two_to_three_seconds(world: LeaseWorld) -> None:
    leader, other = world.add_candidate("a"), world.add_candidate("b")
    await world.until(300)
    assert (len(leader.terms), len(other.terms)) == (1, 0)
    gaps = [later - earlier for earlier, later in pairwise(lease_writes(leader)[1:])]
    assert min(gaps) >= 2.0
    assert max(gaps) <= 3.1


@in_virtual_time(LeaseWorld)
async def test_a_dead_leader_is_replaced_within_twenty_seconds(world: LeaseWorld) -> None:
    leader = world.add_candidate("a", write_forever)
    await world.until(1)
    for name, delay in (("b", 10.0), ("c", 11.0), ("d", 12.3)):
        successor = world.add_candidate(name, write_forever)
        await world.clock.sleep(delay)
        death = world.clock.monotonic()
        await world.kill(leader)
        await world.until(death + 20)
        assert successor.is_leading
        assert world.effects()[-1].user == name
        leader = successor


@in_virtual_time(LeaseWorld)
async def test_a_standby_watches_and_hardly_asks(world: LeaseWorld) -> None:
    leader, standby = world.add_candidate("a"), world.add_candidate("b")
    await world.until(5)
    begun = len(standby.machine.requests)
    await world.until(1805)
    sent = [request for _, request in standby.machine.requests[begun:]]
    assert leader.is_leading
    assert 5 <= sum("watch" in request.query for request in sent) <= 8
    assert sum("watch" not in request.query for request in sent) <= 1


@pytest.mark.parametrize(
    ("verb", "effect"),
    [
        pytest.param("watch", Hang(), id="a watch that is never answered"),
        pytest.param("watch", SlowBody(piece=1, seconds=1e4), id="a watch that tells nothing"),
        pytest.param("watch", DropWatch(), id="a watch that ends at once"),
        pytest.param("list", RefuseRequest(403), id="rights of an earlier release"),
    ],
)
@in_virtual_time(LeaseWorld)
async def test_a_standby_without_a_watch_asks_and_takes_the_lease_in_time(
    world: LeaseWorld, verb: str, effect: FaultEffect
) -> None:
    leader = world.add_candidate("a", write_forever)
    await world.until(1)
    world.server.faults.add(Fault(effect=effect, verbs=(verb,), kind="Lease", user="b"))
    standby = world.add_candidate("b", write_forever)
    await world.until(100)
    assert not standby.terms
    await world.kill(leader)
    await world.until(120)
    assert standby.is_leading


@in_virtual_time(LeaseWorld)
async def test_a_watch_that_falls_silent_later_delays_the_next_leader_by_one_look(
    world: LeaseWorld,
) -> None:
    """The record is read when the watch would let it expire: it was renewed, so the wait begins
    again, and from then on the standby asks, as the watch tells less than the answer."""
    leader = world.add_candidate("a", write_forever)
    standby = world.add_candidate("b", write_forever)
    await world.until(60)
    silent = Fault(effect=SlowBody(piece=1, seconds=1e4), verbs=("watch",), kind="Lease", user="b")
    world.server.faults.add(silent)
    await world.until(500)
    assert not standby.terms
    await world.kill(leader)
    await world.until(520)
    assert standby.is_leading


@in_virtual_time(LeaseWorld)
async def test_a_released_lease_is_taken_at_once(world: LeaseWorld) -> None:
    leader, successor = (world.add_candidate(name, write_forever) for name in "ab")
    await world.until(20)
    await leader.stop()
    assert world.clock.monotonic() < 20.1
    spec = await world.lease_spec()
    assert spec["leaseDurationSeconds"] == 1
    assert not spec.get("holderIdentity")
    await world.until(21.5)
    assert successor.is_leading
    assert successor.terms[0].transitions == leader.terms[0].transitions + 1


@in_virtual_time(LeaseWorld)
async def test_the_release_waits_for_requests_in_flight(world: LeaseWorld) -> None:
    async def write_once(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
        await write_effect(candidate, term, kube, 1)

    world.fail(*SLOWEST, kind="ConfigMap")
    leader = world.add_candidate("a", write_once)
    await world.until(1)
    successor = world.add_candidate("b")
    await leader.stop()
    assert 6.0 <= world.clock.monotonic() < 6.1
    await world.until(8)
    assert successor.is_leading
    assert [round(world.time_of(entry)) for entry in world.effects()] == [6]


@pytest.mark.parametrize(
    "effects",
    [
        [Hang()],
        [UNANSWERED],
        [Delay(2.999), UNANSWERED],
        [Delay(10)],
        [RefuseRequest(500)],
        [RefuseRequest(429)],
        [RefuseRequest(403)],
        [RefuseRequest(409)],
    ],
)
@in_virtual_time(LeaseWorld)
async def test_the_body_ends_eight_seconds_after_sending_the_last_successful_renewal(
    world: LeaseWorld, effects: list[FaultEffect]
) -> None:
    world.fail(late(1.0))  # a late response must not make the term longer
    leader = world.add_candidate("a", write_forever)
    await world.until(10)
    world.server.faults.clear()
    world.fail(*effects, user="a")
    successor = world.add_candidate("b", write_forever)
    await world.until(40)
    renewals = [sent for sent in lease_writes(leader) if sent < 10]
    assert leader.tenures[0].end == pytest.approx(renewals[-1] + 8)
    assert "was not renewed for 8 s" in leader.losses[0]
    last_write = max(
        world.time_of(entry)
        for entry in world.journal
        if entry.kind == "Lease" and entry.user == "a"
    )
    assert successor.tenures[0].start < last_write + 20


@in_virtual_time(LeaseWorld)
async def test_the_first_term_starts_when_the_claim_is_sent(world: LeaseWorld) -> None:
    world.fail_writes(late(2.5))
    leader = world.add_candidate("a")
    await world.until(2.7)
    (claim,) = lease_writes(leader)
    world.fail(Hang(), user="a")
    await world.until(20)
    assert leader.tenures[0].end == pytest.approx(claim + 8)


@in_virtual_time(LeaseWorld)
async def test_a_process_frozen_during_the_claim_does_not_start_an_expired_term(
    world: LeaseWorld,
) -> None:
    world.fail_writes(Delay(1.0))
    candidate = world.add_candidate("a")
    await world.until(0.5)
    candidate.machine.freeze(10)
    await world.until(15)
    (tenure,) = candidate.tenures
    assert 11.5 <= tenure.start < 13.5
    assert candidate.losses == []


@in_virtual_time(LeaseWorld)
async def test_only_the_renewal_in_the_record_extends_the_term(world: LeaseWorld) -> None:
    leader = world.add_candidate("a")
    await world.until(10)
    unanswered = world.fail_writes(UNANSWERED, times=1)
    while not unanswered.hit_count:
        await world.clock.sleep(0.01)
    world.fail_writes(Hang())
    await world.until(30)
    first, second, *_ = [sent for sent in lease_writes(leader) if sent > 10]
    assert leader.tenures[0].end == pytest.approx(first + 8)
    assert second < leader.tenures[0].end


@in_virtual_time(LeaseWorld)
async def test_every_change_of_a_term_is_carried_out_before_another_leads(
    world: LeaseWorld,
) -> None:
    async def flood(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
        async def send(number: int) -> None:
            await candidate.machine.sleep(number / 10)
            for count in range(1000):
                with suppress(KubeError):
                    await write_effect(candidate, term, kube, 1000 * number + count)
                await candidate.machine.sleep(0.05)

        async with asyncio.TaskGroup() as senders:
            for number in range(30):
                senders.create_task(send(number))

    world.fail(*SLOWEST, kind="ConfigMap")
    world.add_candidate("a", flood)
    await world.until(0.5)
    world.add_candidate("b")
    await world.until(1.0)
    world.fail(Hang(), user="a")
    await world.until(40)
    last = world.effects()[-1]
    assert (last.user, round(world.time_of(last))) == ("a", 14)
    assert taken(world)[-1] == ("b", 18)


@in_virtual_time(LeaseWorld)
async def test_a_leader_whose_lease_was_taken_stops_at_the_next_renewal(world: LeaseWorld) -> None:
    leader = world.add_candidate("a")
    await world.until(10)
    await world.delete_lease()
    await world.create_lease(holderIdentity="another", leaseDurationSeconds=15)
    await world.until(13.2)
    assert not leader.is_leading
    assert "held by another now" in leader.losses[0]


@in_virtual_time(LeaseWorld)
async def test_a_deleted_lease_is_recreated_by_its_leader(world: LeaseWorld) -> None:
    leader, other = (world.add_candidate(name, write_forever) for name in "ab")
    for _ in range(3):
        await world.clock.sleep(20)
        await world.delete_lease()
        await world.clock.sleep(3.2)
        spec = await world.lease_spec()
        assert spec["leaseTransitions"] == leader.terms[0].transitions
        assert spec["holderIdentity"] == leader.elector.holder
    assert (len(leader.tenures), len(other.tenures)) == (1, 0)


@in_virtual_time(LeaseWorld)
async def test_metadata_of_others_in_the_lease_is_kept(world: LeaseWorld) -> None:
    leader = world.add_candidate("a")
    await world.until(10)
    view = await world.admin.get(LEASES, LEASE, namespace=NAMESPACE)
    revision = view.metadata.resource_version
    labels = {"metadata": {"labels": {"a": "b"}}}
    await world.admin.merge(LEASES, LEASE, labels, namespace=NAMESPACE, resource_version=revision)
    await world.until(60)
    assert len(leader.tenures) == 1
    assert leader.is_leading
    view = await world.admin.get(LEASES, LEASE, namespace=NAMESPACE)
    assert view.metadata.labels == {"a": "b"}


@in_virtual_time(LeaseWorld, overlaps=True)
async def test_a_frozen_leader_cannot_send_after_waking(world: LeaseWorld) -> None:
    leader, successor = (world.add_candidate(name, write_forever) for name in "ab")
    await world.until(10)
    leader.machine.freeze(60)
    await world.until(32)
    assert successor.is_leading
    await world.until(80)
    assert "a" not in {entry.user for entry in world.effects(since=30)}
    assert (await world.lease_spec())["holderIdentity"] == successor.elector.holder


@in_virtual_time(LeaseWorld)
async def test_a_failing_body_raises_its_error_and_releases_the_lease(world: LeaseWorld) -> None:
    async def fail(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
        await candidate.machine.sleep(1)
        raise ValueError("a fault in the body")

    with pytest.raises(ValueError, match="a fault"):
        await world.add_candidate("a", fail).failed()
    assert not (await world.lease_spec()).get("holderIdentity")


@in_virtual_time(LeaseWorld)
async def test_a_body_that_swallows_the_cancellation_gets_not_leading(world: LeaseWorld) -> None:
    async def swallow(candidate: LeaseCandidate, term: Term, kube: Kube) -> None:
        with suppress(asyncio.CancelledError):
            await idle(candidate, term, kube)

    leader = world.add_candidate("a", swallow)
    await world.until(5)
    world.fail(Hang(), user="a")
    await world.until(20)
    assert len(leader.losses) == 1


@in_virtual_time(LeaseWorld)
async def test_an_unexpected_error_in_a_renewal_ends_the_term(
    world: LeaseWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def broken(request: Request) -> AsyncGenerator[Response]:
        raise RuntimeError("unexpected")
        yield

    leader = world.add_candidate("a")
    await world.until(5)
    with monkeypatch.context() as patch:
        patch.setattr(leader.machine, "open", broken)
        await world.until(8.1)
    assert "RuntimeError: unexpected" in leader.losses[0]
    with pytest.raises(RuntimeError):
        await leader.failed()


# The fence.


class Fence:
    """A term that began at zero, and a client fenced by it."""

    def __init__(self, world: World) -> None:
        self.term = Term(lease="lease a/b", transitions=0, sent=0.0, clock=world.clock)
        fenced = FencedTransport(world.wire, self.term, clock=world.clock)
        self.kube = Kube(fenced, manager="sluice", clock=world.clock)

    async def change(self, name: str = "a", *, within: float = 10.0) -> None:
        wanted = manifest(name)
        await self.kube.create(CONFIG_MAP_VIEWS, wanted, namespace=NAMESPACE, within=within)


@in_virtual_time()
async def test_a_change_is_sent_until_the_end_of_the_term(world: World) -> None:
    fence = Fence(world)
    await world.clock.sleep(TERM_SECONDS - 0.001)
    await fence.change()
    await world.clock.sleep(0.001)
    with pytest.raises(NotLeading, match=r"POST .*configmaps: not sent: lease a/b was not"):
        await fence.change()
    assert len(world.wire.requests) == 1


@in_virtual_time()
async def test_an_ended_term_sends_only_reads_and_names_its_reason(world: World) -> None:
    await world.write(a="1")
    fence = Fence(world)
    fence.term.end("held by another now")
    fence.term.end("the body has ended")
    with pytest.raises(NotLeading, match="held by another now"):
        await fence.change()
    assert not world.wire.requests
    view = await fence.kube.get(CONFIG_MAP_VIEWS, "a", namespace=NAMESPACE)
    assert view.data == {"value": "1"}
    assert "timeout" not in world.wire.requests[0].query


@in_virtual_time()
async def test_a_change_has_at_most_three_seconds_on_both_sides(world: World) -> None:
    fence = Fence(world)
    await fence.change("a", within=10)
    await fence.change("b", within=0.5)
    with suppress(TimedOut):
        await fence.change("c", within=0.0001)  # "0.000s" is no limit
    world.inject(Hang())
    with pytest.raises(TimedOut, match="within 3 s"):
        await fence.change("d", within=10)
    assert world.clock.monotonic() == pytest.approx(3, abs=0.2)
    timeouts = [request.query["timeout"] for request in world.wire.requests]
    assert timeouts == ["3s", "0.500s", "3s", "3s"]


@pytest.mark.parametrize(
    ("effect", "seconds"),
    [
        (Delay(0.0), 0.0),
        (RefuseRequest(409), 0.0),
        (RefuseRequest(429), 0.0),
        (RefuseRequest(500), 6.0),
        (Hang(), 3.0),
        (Delay(5.0), 3.0),
    ],
)
@in_virtual_time()
async def test_requests_without_a_response_stay_in_flight(
    world: World, effect: FaultEffect, seconds: float
) -> None:
    fence = Fence(world)
    world.inject(effect)
    with suppress(KubeError):
        await fence.change()
    assert fence.term.seconds_in_flight() == pytest.approx(seconds, abs=0.1)
    await world.clock.sleep(6)
    assert fence.term.seconds_in_flight() == 0


@in_virtual_time()
async def test_a_late_renewal_does_not_revive_a_term(world: World) -> None:
    term = Fence(world).term
    term.renew(2.0)
    assert term.remaining() == 10
    await world.clock.sleep(11)
    term.renew(9.0)
    assert term.remaining() == 0
