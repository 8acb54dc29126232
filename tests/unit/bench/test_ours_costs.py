"""What is counted of the requests of our scheduler, and what a probe makes of a driver's start."""

import pytest

from bench.ours_costs import PROOFS, Looks, Requests
from bench.probing import LONGEST, PROBE_DELAY, PROBE_FAILURES, PROBE_PERIOD, Probed, probed
from libs.contracts.journal import Verb
from libs.contracts.rollout import KIND
from libs.forecast.stage.paths import KUBELET, SCHEDULER
from libs.forecast.world import RUNS_ON, Ending, Span, Steady
from libs.policy.normal import STARTUP
from services.scheduler.tenants import WATCHED


def test_a_conflict_is_a_write_and_a_look() -> None:
    requests = Requests()
    requests.request(kind="Node", verb=Verb.APPLY, code=200, user=SCHEDULER)
    requests.request(kind="Node", verb=Verb.APPLY, code=409, user=SCHEDULER)
    requests.request(kind="Node", verb=Verb.PATCH, code=200, user=KUBELET)
    assert (requests.writes, requests.reads) == (2, 1)


def test_evictions_and_refusals_are_told_apart() -> None:
    requests = Requests()
    for code in (429, 429, 201):
        requests.request(kind="Pod", verb=Verb.EVICT, code=code, user=SCHEDULER)
    assert (requests.evictions, requests.refusals, requests.writes) == (1, 2, 3)


def test_a_finalizer_that_comes_or_goes_is_a_write_of_its_own() -> None:
    requests = Requests()
    for finalizers in ({}, {"metadata.finalizers": ["one"]}, {"metadata.finalizers": ["one"]}, {}):
        requests.request(
            kind=KIND, verb=Verb.UPDATE, code=200, user=SCHEDULER, leaves={"x": 1, **finalizers}
        )
    assert requests.writes == 4 + 2


def test_each_policy_kind_is_proven_by_itself() -> None:
    requests = Requests()
    requests.prove(["nodes", "policies"])
    assert requests.reads == 1 + PROOFS["policies"]
    assert PROOFS["policies"] > 2


def test_a_watch_is_begun_anew_now_and_then() -> None:
    looks = Looks()
    looks.follow(["one", "two"], 0.0)
    looks.follow(["two"], 10.0)
    assert looks.reads == 2
    looks.follow([], 3 * 300.0 + 1.0)
    assert looks.reads == 2 + 2 + 3


def test_on_many_nodes_pods_are_listed_again_and_again() -> None:
    names = [f"node-{number:03}" for number in range(WATCHED + 1)]
    looks = Looks()
    looks.follow(names, 0.0)
    looks.follow(names[:WATCHED], 95.0)
    assert looks.reads == 1 + 9
    looks.follow([], 100.0)
    assert looks.reads == 1 + 9 + 2 * WATCHED


def test_the_probe_is_that_of_the_policies() -> None:
    assert STARTUP.initial_delay_seconds == PROBE_DELAY
    assert STARTUP.period_seconds == PROBE_PERIOD
    assert STARTUP.failure_threshold == PROBE_FAILURES


@pytest.mark.parametrize(
    ("load", "seen"),
    [
        (Ending(1.0), Ending(60.0)),
        (Ending(60.0), Ending(60.0)),
        (Ending(60.1), Ending(70.0)),
        (Ending(109.0), Ending(110.0)),
        (Ending(33.0, 1), Ending(33.0, 1)),
        (Ending(LONGEST + 1.0), Ending(LONGEST, 1)),
        (Ending(None), Ending(LONGEST, 1)),
    ],
)
def test_a_driver_is_ready_when_its_probe_has_seen_it(load: Ending, seen: Ending) -> None:
    assert probed(load) == seen


def test_readiness_is_told_by_the_probe_alone() -> None:
    world = Probed(Steady(loading=75.0, starting=200.0))
    assert world.load("node", "new", 0) == Ending(80.0)
    assert world.ready("node", "new", "driver", 0) == Span(0.0)
    assert world.run("node", "new", "driver", 0) == RUNS_ON
    stays = Probed(Steady(loading=75.0, starting=200.0), stays="driver")
    assert stays.load("node", "new", 0) == Ending(200.0)
