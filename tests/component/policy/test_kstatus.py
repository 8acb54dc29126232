"""What a pipeline reads of our objects: kstatus, the library of Helm and Flux, judges them."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Brake, RolloutSpec, RolloutStatus
from libs.kube.views import Metadata
from libs.policy.crds import crd_manifest
from libs.policy.kinds import KINDS
from libs.policy.kinds.rollout import ROLLOUT
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.readiness import ObservedNode
from libs.policy.status import PolicyStatus
from libs.testing.helm import find_kstatus
from services.driver.cluster.decide import status_change
from services.driver.cluster.resources import PolicyObject
from tests.unit.policy import situations
from tests.unit.policy.situations import DRIVER, UBUNTU, Situation, node
from tests.unit.policy.test_status import (
    HEALTHY,
    OFF,
    ONE_DRIVER,
    UPGRADED,
    cluster_policy,
    complete,
    only_status,
    statuses,
)
from tests.unit.rollout.allocate.builders import candidate, decided, of_target, open_pool, written
from tests.unit.rollout.builders import done, failed, instant, with_rollout

Object = dict[str, Any]
Judge = Callable[[Sequence[Object]], list[tuple[str, str]]]

NOW = "2026-01-01T00:00:00Z"
(POOL,) = ONE_DRIVER.pools().pools
OLD = ObservedNode(state="upgrade-required", label="old")
PAUSED = "Rollout clusterpolicy-cluster-policy is paused by anna (spec.brake: Pause)"
HALTED = "1 of 1 failures: c; it ends with spec.release, or with another driver"


@pytest.fixture
def judge() -> Judge:
    """Return a function that returns the status of each object, and its message."""
    program = find_kstatus(os.environ)
    if program is None:
        pytest.skip("kstatus is not built: run `make helm`")

    def judge(objects: Sequence[Object]) -> list[tuple[str, str]]:
        done = subprocess.run(
            [program], input=json.dumps(objects).encode(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return [(each["status"], each["message"]) for each in json.loads(done.stdout)]

    return judge


def new_status(kind: str) -> Object:
    """Return the status that the API server fills in."""
    version = crd_manifest(KINDS.get(kind, ROLLOUT))["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]


def stored(kind: str, status: Object, *, generation: int = 1) -> Object:
    found = KINDS.get(kind, ROLLOUT)
    metadata = {"name": "a", "generation": generation}
    return {"apiVersion": found.api_version, "kind": kind, "metadata": metadata, "status": status}


def after(status: PolicyStatus, *, before: Object | None = None, foreign: str = "") -> Object:
    """Return the policy with the status that the driver service writes."""
    earlier = new_status(status.kind) if before is None else before
    metadata = Metadata(name=status.name, uid=status.uid, generation=status.generation)
    policy = PolicyObject(metadata=metadata, status=earlier)
    change = status_change(status, policy, namespace="ns", foreign=foreign, now=NOW) or {}
    merged = {key: value for key, value in {**earlier, **change}.items() if value is not None}
    return stored(status.kind, merged, generation=status.generation)


def policy_with(node_c: ObservedNode | None = None, **rollout: Any) -> Object:
    nodes = {**HEALTHY["nodes"], **({"c": node_c} if node_c else {})}
    told = complete(POOL, **{"is_complete": node_c is None, **rollout})
    return after(only_status(ONE_DRIVER, nodes=nodes, rollouts={POOL.key: told}))


def kept_drivers() -> Object:
    situation = Situation([cluster_policy(driver=DRIVER)], [UBUNTU, node("c")])
    (pool,) = situation.pools().pools
    nodes = {**HEALTHY["nodes"], "c": ObservedNode(state="upgrade-done", label="old")}
    paused = complete(pool, is_complete=False, paused="AutoUpgradeOff", because="it is off")
    return after(only_status(situation, nodes=nodes, rollouts={pool.key: paused}))


def invalid_policy() -> Object:
    policy = cluster_policy(driver={**UPGRADED, "version": 7})
    return after(only_status(Situation([policy], [UBUNTU])))


def edited_policy() -> Object:
    """Return a policy that was done, and that nobody has looked at since it was edited."""
    found = policy_with()
    found["metadata"]["generation"] += 1
    return found


def seen_by_one(**_: Any) -> Object:
    """Return one that the driver service has seen, and the scheduler has not."""
    before = policy_with()["status"]
    status = only_status(
        ONE_DRIVER, rollouts={POOL.key: complete(POOL, target="of the edit before")}
    )
    return after(replace(status, generation=2), before=before)


def left_to_operator() -> Object:
    before = policy_with()["status"]
    return after(only_status(ONE_DRIVER), before=before, foreign="it holds its lease")


def strategy(**spec: Any) -> Object:
    made = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "RolloutStrategy",
        "metadata": {"name": "s"},
        "spec": {"pool": POOL.key, **spec},
    }
    return after(statuses(Situation([cluster_policy(), made], [UBUNTU]))["s"])


def rollout(*nodes: Any, brake: Brake = Brake.NONE, record: Any = None, **changes: Any) -> Object:
    """Return a Rollout with the status that the scheduler writes for these nodes."""
    pool = open_pool(record=record or of_target(), base=9)
    pool = replace(with_rollout(pool, spec=RolloutSpec(brake=brake), generation=1), **changes)
    status: RolloutStatus = written(decided(pool, *nodes, now=instant()))
    return stored(ROLLOUT.name, msgspec.to_builtins(status))


CASES: dict[str, tuple[Callable[[], Object], str, str]] = {
    "a policy that nobody has looked at": (
        lambda: stored("ClusterPolicy", new_status("ClusterPolicy")),
        "InProgress",
        "generation",
    ),
    "a policy that is done": (policy_with, "Current", ""),
    "an edited policy": (edited_policy, "InProgress", "generation is 1"),
    "an edit that the scheduler has not seen": (seen_by_one, "InProgress", "generation is 0"),
    "an upgrade": (
        lambda: policy_with(OLD, because="the driver must be validated on 1 node"),
        "InProgress",
        "must be validated",
    ),
    "a halt": (lambda: policy_with(OLD, halted=HALTED), "Failed", HALTED),
    "a pause": (lambda: policy_with(OLD, paused="Brake", because=PAUSED), "InProgress", PAUSED),
    "an invalid policy": (invalid_policy, "Failed", "spec.driver.version"),
    "a section without effect": (
        lambda: after(
            only_status(Situation([situations.cluster_policy(devicePlugin=OFF, cdi=OFF)]))
        ),
        "Failed",
        "spec.toolkit is switched on",
    ),
    "autoUpgrade off": (kept_drivers, "Current", ""),
    "a policy that is left to a GPU Operator": (left_to_operator, "InProgress", "has not written"),
    "a new strategy": (
        lambda: stored(ROLLOUT_STRATEGY.name, new_status(ROLLOUT_STRATEGY.name)),
        "InProgress",
        "generation",
    ),
    "a strategy": (strategy, "Current", ""),
    "an invalid strategy": (lambda: strategy(retries="many"), "Failed", "spec.retries"),
    "a new Rollout": (
        lambda: stored(ROLLOUT.name, new_status(ROLLOUT.name)),
        "InProgress",
        "generation",
    ),
    "a complete Rollout": (lambda: rollout(done()), "Current", ""),
    "a Rollout without nodes": (rollout, "Current", ""),
    "a Rollout under way": (
        lambda: rollout(done(), candidate("n")),
        "InProgress",
        "not all nodes have it",
    ),
    "a halted Rollout": (lambda: rollout(failed("n")), "Failed", "it ends with spec.release"),
    "a paused Rollout": (
        lambda: rollout(done(), candidate("n"), brake=Brake.PAUSE),
        "InProgress",
        "is paused",
    ),
    "a Rollout of an invalid policy": (
        lambda: rollout(done(), candidate("n"), errors=("spec.driver is wrong",)),
        "Failed",
        "spec.driver is wrong",
    ),
}
"""By what it is: the object, what pipelines are to read, and a part of the reason."""


def test_pipelines_read_what_an_object_is(judge: Judge) -> None:
    told = judge([make() for make, _, _ in CASES.values()])
    found = {name: status for name, (status, _) in zip(CASES, told, strict=True)}
    assert found == {name: expected for name, (_, expected, _) in CASES.items()}
    for (name, (_, _, words)), (_, message) in zip(CASES.items(), told, strict=True):
        assert words in message, name


def test_a_policy_of_nvidias_definition_is_taken_for_done_when_it_is_edited(judge: Judge) -> None:
    """Its definition lacks the generation: `doctor` says that a pipeline cannot wait for it."""
    found = edited_policy()
    del found["status"]["observedGeneration"]
    assert [status for status, _ in judge([found])] == ["Current"]
