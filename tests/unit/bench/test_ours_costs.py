"""The counted requests of our scheduler, and the startup probe."""

import pytest

from bench.comparison import startup_probe_end
from bench.ours import ProbedWorld
from bench.ours_costs import PROOFS, PodWatches, RequestCounter
from libs.contracts.journal import Verb
from libs.contracts.rollout import KIND
from libs.forecast.stage.state import SCHEDULER, ObjectRef, Requester
from libs.forecast.world import RUNS_FOREVER, ProcessEnd, TimeSpan
from libs.rollout.views.pool import RolloutView
from libs.testing.stage.faults import KUBELET
from libs.testing.stage.recorder import After
from libs.testing.stage.worlds import SteadyWorld
from services.scheduler.pod_cache import MAX_WATCHED_NODES


def request(
    requests: RequestCounter,
    verb: Verb,
    *,
    kind: str = "Node",
    code: int = 200,
    user: str = SCHEDULER,
    after: After = None,
) -> None:
    ref, by = ObjectRef(kind, "some", "uid"), Requester(verb, user)
    requests.request(0.0, ref, by, code, revision=0, after=after)


def test_a_conflict_is_a_write_and_a_read() -> None:
    requests = RequestCounter()
    request(requests, Verb.APPLY)
    request(requests, Verb.APPLY, code=409)
    request(requests, Verb.PATCH, user=KUBELET)
    assert (requests.writes, requests.reads) == (2, 1)


def test_evictions_and_refusals_are_counted_separately() -> None:
    requests = RequestCounter()
    for code in (429, 429, 201):
        request(requests, Verb.EVICT, kind="Pod", code=code)
    assert (requests.evictions, requests.refusals, requests.writes) == (1, 2, 3)


def test_adding_or_removing_a_finalizer_is_a_separate_write() -> None:
    requests = RequestCounter()
    for finalized in (False, True, True, False):
        rollout = RolloutView(uid="uid", revision="1", has_finalizer=finalized)
        request(requests, Verb.UPDATE, kind=KIND, after=rollout)
    assert requests.writes == 4 + 2


def test_each_policy_kind_needs_its_own_probe() -> None:
    requests = RequestCounter()
    requests.prove(["nodes", "policies"])
    assert requests.reads == 1 + PROOFS["policies"]
    assert PROOFS["policies"] > 2


def test_a_watch_is_restarted_periodically() -> None:
    watches = PodWatches()
    watches.follow(["one", "two"], 0.0)
    watches.follow(["two"], 10.0)
    assert watches.reads == 2
    watches.follow([], 3 * 300.0 + 1.0)
    assert watches.reads == 2 + 2 + 3


def test_pods_beyond_the_watched_nodes_are_listed_periodically() -> None:
    names = [f"node-{number:03}" for number in range(MAX_WATCHED_NODES + 1)]
    watches = PodWatches()
    watches.follow(names, 0.0)
    watches.follow(names[:MAX_WATCHED_NODES], 95.0)
    assert watches.reads == 1 + 9
    watches.follow([], 100.0)
    assert watches.reads == 1 + 9 + 2 * MAX_WATCHED_NODES


@pytest.mark.parametrize(
    ("load", "end"),
    [
        (ProcessEnd(1.0), ProcessEnd(60.0)),
        (ProcessEnd(60.0), ProcessEnd(60.0)),
        (ProcessEnd(60.1), ProcessEnd(70.0)),
        (ProcessEnd(109.0), ProcessEnd(110.0)),
        (ProcessEnd(33.0, 1), ProcessEnd(33.0, 1)),
        (ProcessEnd(1261.0), ProcessEnd(1260.0, 1)),
        (ProcessEnd(None), ProcessEnd(1260.0, 1)),
    ],
)
def test_a_driver_is_ready_once_its_startup_probe_succeeds(
    load: ProcessEnd, end: ProcessEnd
) -> None:
    assert startup_probe_end(load) == end


def test_a_probed_world_is_ready_by_its_probe_alone() -> None:
    steady = SteadyWorld(load_seconds=75.0, ready_seconds=200.0)
    world = ProbedWorld(steady, restart_only=False)
    assert world.load("node", "new", 0) == ProcessEnd(80.0)
    assert world.ready("node", "new", "driver", 0) == TimeSpan(0.0)
    assert world.run("node", "new", "driver", 0) == RUNS_FOREVER
    restarted = ProbedWorld(steady, restart_only=True)
    assert restarted.load("node", "new", 0) == ProcessEnd(200.0)
