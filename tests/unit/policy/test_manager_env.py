"""Every documented variable of the vendor's driver manager is obeyed, or named by a condition."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.policy.findings import Severity
from libs.policy.kinds.common import EnvVar
from libs.policy.kinds.upgrade_policy import Drain, PodDeletion, UpgradePolicy
from libs.policy.manager_env import VARIABLES, check_manager_env, parse_duration, upgrades_by_hand
from libs.policy.pool import Pool
from libs.policy.readiness import Observation
from libs.policy.status import policy_statuses
from tests.unit.policy.situations import (
    DRIVER,
    Situation,
    cluster_policy,
    crd_mode_policy,
    nvidia_driver,
)
from tests.unit.policy.test_page import PAGE

# The flags of k8s-driver-manager, and what the GPU Operator sets beside them.
DOCUMENTED = {
    *("NODE_NAME", "OPERATOR_NAMESPACE", "KUBECONFIG", "NVIDIA_VISIBLE_DEVICES"),
    *("ENABLE_GPU_POD_EVICTION", "ENABLE_AUTO_DRAIN", "DRAIN_USE_FORCE"),
    *("DRAIN_POD_SELECTOR_LABEL", "DRAIN_TIMEOUT_SECONDS", "DRAIN_DELETE_EMPTYDIR_DATA"),
    *("NODE_LABEL_FOR_GPU_POD_EVICTION", "GPU_DIRECT_RDMA_ENABLED", "USE_HOST_MOFED"),
    *("FORCE_REINSTALL", "DRIVER_CONFIG_DIGEST"),
}
OFF = UpgradePolicy(
    pod_deletion=PodDeletion(timeout_seconds=60), drain=Drain(timeout_seconds=70, pod_selector="a")
)
"""A policy with `autoUpgrade` off."""
EVICTION, DRAIN = OFF.pod_deletion, OFF.drain
OBEYED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("ENABLE_GPU_POD_EVICTION", "true", {}, {}),
    ("ENABLE_AUTO_DRAIN", "true", {}, {"enable": True}),
    ("ENABLE_AUTO_DRAIN", "0", {}, {}),
    ("DRAIN_USE_FORCE", "T", {"force": True}, {"force": True}),
    ("DRAIN_DELETE_EMPTYDIR_DATA", "1", {"delete_empty_dir": True}, {"delete_empty_dir": True}),
    ("DRAIN_TIMEOUT_SECONDS", "5m", {"timeout_seconds": 300}, {"timeout_seconds": 300}),
    ("DRAIN_TIMEOUT_SECONDS", "0s", {"timeout_seconds": 0}, {"timeout_seconds": 0}),
    ("DRAIN_POD_SELECTOR_LABEL", "app in (x, y)", {}, {"pod_selector": "app in (x, y)"}),
    ("DRAIN_POD_SELECTOR_LABEL", "", {}, {"pod_selector": ""}),
]
"""Name, value, and what changes for the eviction of GPU pods and for the drain."""
REFUSED = [
    ("ENABLE_GPU_POD_EVICTION", "false", "is refused: GPU pods are always evicted"),
    ("ENABLE_GPU_POD_EVICTION", "no", "cannot be read"),
    ("ENABLE_AUTO_DRAIN", "yes", "cannot be read"),
    ("DRAIN_USE_FORCE", "", "cannot be read"),
    ("DRAIN_DELETE_EMPTYDIR_DATA", "tRUE", "cannot be read"),
    ("DRAIN_TIMEOUT_SECONDS", "300", "cannot be read"),
    ("DRAIN_POD_SELECTOR_LABEL", "a=b=c", "cannot be read"),
]


def env(*pairs: tuple[str, str]) -> list[EnvVar]:
    return [EnvVar(name=name, value=value) for name, value in pairs]


def test_the_table_has_every_documented_variable() -> None:
    assert VARIABLES.keys() == DOCUMENTED
    page = PAGE.read_text()
    assert [name for name in DOCUMENTED if f"\n| `{name}` | " not in page] == []
    obeyed = {name for name, variable in VARIABLES.items() if variable.change is not None}
    assert obeyed == {name for name, *_ in OBEYED}
    assert {name for name, *_ in REFUSED} == obeyed


@pytest.mark.parametrize(("name", "value", "eviction", "drain"), OBEYED)
def test_a_variable_about_pods_is_obeyed_without_a_controller(
    name: str, value: str, eviction: dict[str, Any], drain: dict[str, Any]
) -> None:
    given = env((name, "false"), (name, value))  # the last one counts
    wanted = replace(OFF, pod_deletion=replace(EVICTION, **eviction), drain=replace(DRAIN, **drain))
    assert upgrades_by_hand(OFF, given) == wanted
    assert list(check_manager_env(given, OFF, path="p")) == []
    on = replace(OFF, auto_upgrade=True)
    assert upgrades_by_hand(on, given) == on
    (found,) = check_manager_env(given, on, path="p")
    assert (found.severity, found.field) == (Severity.NOTE, f"p[{name}]")
    assert "because autoUpgrade is on" in found.problem


def test_the_old_spelling_of_pod_deletion_is_changed_too() -> None:
    old = replace(OFF, gpu_pod_deletion=PodDeletion(timeout_seconds=5))
    changed = upgrades_by_hand(old, env(("DRAIN_USE_FORCE", "true")))
    assert changed.gpu_pod_deletion is None
    assert changed.pod_deletion == PodDeletion(timeout_seconds=5, force=True)


@pytest.mark.parametrize(("name", "value", "problem"), REFUSED)
def test_a_value_that_cannot_be_obeyed_is_an_error_without_a_controller(
    name: str, value: str, problem: str
) -> None:
    given = env((name, value))
    (found,) = check_manager_env(given, OFF, path="p")
    assert (found.severity, found.field) == (Severity.ERROR, f"p[{name}]")
    assert found.problem.startswith(problem)
    assert found.remedy
    assert upgrades_by_hand(OFF, given) == OFF
    (found,) = check_manager_env(given, replace(OFF, auto_upgrade=True), path="p")
    assert found.severity is Severity.NOTE


@pytest.mark.parametrize(
    "name", [*(name for name, each in VARIABLES.items() if each.because), "DRAIN_FASTER"]
)
@pytest.mark.parametrize("auto", [False, True])
def test_a_variable_without_effect_is_named(name: str, *, auto: bool) -> None:
    policy = replace(OFF, auto_upgrade=auto)
    (found,) = check_manager_env(env((name, "true")), policy, path="p")
    assert (found.severity, found.field) == (Severity.NOTE, f"p[{name}]")
    assert "has no effect here, because " in found.problem
    assert upgrades_by_hand(policy, env((name, "true"))) == policy


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("300s", 300), ("1h30m", 5400), ("1.5m", 90), ("1ms", 1), ("1500ms", 2)],
)
def test_durations_are_read_as_the_manager_reads_them(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "-5m", "5d", "1.2.3s", "٣s"])
def test_what_is_no_duration_is_not_read(text: str) -> None:
    assert parse_duration(text) is None


def pool_of(*objects: dict[str, Any]) -> Pool:
    (pool,) = Situation(list(objects)).pools().pools
    return pool


@pytest.mark.parametrize("of_cluster", [True, False])
def test_pools_and_conditions_follow_the_variables(*, of_cluster: bool) -> None:
    manager = {"env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}]}
    refused = {"env": [{"name": "ENABLE_GPU_POD_EVICTION", "value": "false"}]}
    for auto, given, drains, held in (
        (False, manager, True, 0),
        (True, manager, False, 0),
        (False, refused, False, 1),
        (True, refused, False, 0),
    ):
        fields = {"upgradePolicy": {"autoUpgrade": auto}, "manager": given}
        objects = [cluster_policy(driver={**DRIVER, **fields})]
        if not of_cluster:
            objects = [crd_mode_policy(), nvidia_driver("a", default=True, **fields)]
        pool = pool_of(*objects)
        assert (pool.upgrade.drain.enable, len(pool.held)) == (drains, held)
        situation = Situation(objects)
        *_, status = policy_statuses(
            situation.pools(), situation.placement(), situation.rendering(), Observation()
        )
        (accepted,) = [each for each in status.conditions if each.type == "Accepted"]
        assert accepted.status is (held == 0)
        assert (given["env"][0]["name"] in accepted.message) is (auto or held == 1)
