"""Fields that work change something in the cluster; fields without effect change nothing.

The outcomes are those of docs/policies.md.
"""

import copy
import functools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from libs.policy.digest import target_digest
from libs.policy.kinds import KINDS
from libs.policy.pool import Pool
from libs.policy.readiness import Observation
from libs.policy.render.operands import render_operands
from libs.policy.render.rendered import RenderResult
from libs.policy.shapes import leaf_fields
from libs.policy.status import policy_statuses
from libs.policy.wanted import operands_of
from services.discovery.cluster import operand_labels
from tests.unit.policy.fields import ExpectedFinding, FieldCase, cases, minimal_object, put
from tests.unit.policy.situations import (
    FILES,
    SETTINGS,
    UBUNTU,
    Object,
    Situation,
    cluster_policy,
    crd_mode_policy,
    node,
    nvidia_driver,
    without_digests,
)

OTHER = {"repository": "other.example", "image": "other", "version": "1"}
HANDLERS = ("nvidia", "nvidia-cdi", "gpu")
ELSEWHERE = ("Rollout",)
"""Kinds that the scheduler reads by itself."""
NAMING = ("Accepted", "MissingOperands")
"""The conditions that name what has no effect."""
ONE_VALUE = ("startupProbe.successThreshold", "driver.startupProbe.successThreshold")
"""Kubernetes allows only one value."""
CASES = [case for case in cases() if case.kind not in ELSEWHERE]
REASONS = {
    (kind.name, path): reason
    for kind in KINDS.values()
    for path, _, reason in leaf_fields(kind.spec_shape, "")
}


def works(case: FieldCase) -> bool:
    return not REASONS[case.kind, case.path]


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_the_outcome_of_a_field_is_that_of_its_finding(case: FieldCase) -> None:
    found = ExpectedFinding.NOTE, ExpectedFinding.WARNING
    is_alias = case.path.endswith("gpuPodDeletion")
    assert works(case) is (case.expected not in found or is_alias)


@pytest.mark.parametrize("case", [case for case in CASES if works(case)], ids=str)
def test_a_field_that_works_changes_something(case: FieldCase) -> None:
    base = policies(case)
    if case.path not in ONE_VALUE:
        assert effects_of_base(msgspec.json.encode(base)) != effects(changed(base, case))


@pytest.mark.parametrize("case", [case for case in CASES if not works(case)], ids=str)
def test_a_field_without_effect_changes_nothing(case: FieldCase) -> None:
    base = policies(case)
    before = effects_of_base(msgspec.json.encode(base), digests=True)
    assert before == effects(changed(base, case), digests=True)


def policies(case: FieldCase) -> list[Object]:
    """Return policies with everything enabled except the field itself, which is in the last one."""
    if case.kind == "GPUClusterPolicy":
        policy = minimal_object(case.kind)
        if case.path == "cuda.enabled":
            put(policy["spec"], "cuda.version", "12.9")
        if case.path == "dra.enabled":
            put(policy["spec"], "devicePlugin.enabled", False)
        return [policy]
    if case.kind == "RolloutStrategy":
        strategy = minimal_object(case.kind)
        strategy["spec"] |= {"pool": "clusterpolicy-cluster-policy", "retries": 3}
        return [cluster_policy(), strategy]
    parts = {
        part: {**OTHER, "enabled": case.path != f"{part}.enabled"}
        for part in ("gds", "gdrcopy")
        if not case.path.endswith("usePrecompiled")
    }
    driver = {**OTHER, "rdma": {"enabled": not case.path.endswith("rdma.enabled")}}
    if case.kind == "ClusterPolicy":
        in_vms = case.path == "sandboxWorkloads.defaultWorkload"
        monitor, other = (
            {"enabled": case.path != f"{part}.serviceMonitor.enabled"}
            for part in ("dcgmExporter", "nodeStatusExporter")
        )
        is_on = case.path != "nodeStatusExporter.enabled"
        return [
            cluster_policy(
                driver=driver,
                sandboxWorkloads={"enabled": in_vms},
                dcgmExporter={"serviceMonitor": monitor},
                nodeStatusExporter={"enabled": is_on, "serviceMonitor": other},
                devicePlugin={
                    "enabled": case.path != "dra.enabled",
                    "config": _other_half(case.path),
                },
                cdi={"nriPluginEnabled": case.path == "toolkit.env"},
                **parts,
            )
        ]
    by_hand = {"upgradePolicy": {"autoUpgrade": False}} if case.path == "manager.env" else {}
    others = [nvidia_driver("b", nodeSelector=UBUNTU.labels)] if case.path == "default" else []
    return [crd_mode_policy(), *others, nvidia_driver("a", **driver, **parts, **by_hand)]


def _other_half(path: str) -> Object:
    """Return what one field of the device plugin's configuration needs beside it."""
    return {"name": "c"} if path == "devicePlugin.config.default" else {}


def changed(base: list[Object], case: FieldCase) -> list[Object]:
    other = copy.deepcopy(base)
    put(other[-1]["spec"], case.path, case.value)
    return other


CONFIG_MAPS = {**FILES, "r": ["a.list"], "c": ["ca.crt"], "k": ["nvidia.conf"]}


def render(objects: list[Object]) -> RenderResult:
    situation = Situation(objects, [UBUNTU, node("c", rack="8")])
    return render_operands(
        situation.pools(),
        situation.placement(),
        SETTINGS,
        config_maps=CONFIG_MAPS,
        handlers=HANDLERS,
    )


def changed_policies() -> Iterator[tuple[str, list[Object]]]:
    """Yield policies with one changed field each, for every field that changes an object."""
    for case in CASES:
        after = changed(policies(case), case)
        if works(case) and render(after).objects != render(policies(case)).objects:
            yield str(case), after


def _host_driver(pool: Pool) -> tuple[str, str]:
    return pool.driver.version, pool.driver.cuda


def effects(objects: list[Object], *, digests: bool = False) -> Any:
    """Return what becomes of policies: objects, pools, labels of nodes, and statuses."""
    situation = Situation(objects, [UBUNTU, node("c", rack="8")])
    pools, placement, rendering = situation.pools(), situation.placement(), render(objects)
    operands = operands_of(pools.cluster)
    return (
        rendering if digests else without_digest_fields(rendering),
        [
            (pool.key, pool.nodes, pool.upgrade, pool.strategy, pool.held, *_host_driver(pool))
            for pool in pools.pools
        ],
        [target_digest(pool.driver) for pool in pools.pools] if digests else [],
        (operands.gpu_labels, operands.telemetry, operands.mig_strategy),
        (operands.mig_manager, operands.mig_config, operands.mig_may_reboot),
        operands.validation_pod,
        [operand_labels.operands(each.labels, pools.cluster) for each in situation.nodes],
        [
            (status.state, [each for each in status.conditions if each.type not in NAMING])
            for status in policy_statuses(pools, placement, rendering, Observation())
            if digests
        ],
        [
            [each for each in status.conditions if each.type == "MissingOperands"]
            for status in policy_statuses(pools, placement, rendering, Observation())
            if not digests
        ],
    )


@functools.cache
def effects_of_base(objects: bytes, *, digests: bool = False) -> Any:
    """Return the effects of policies in JSON: many cases begin with the same ones."""
    return effects(msgspec.json.decode(objects), digests=digests)


def without_digest_fields(rendering: RenderResult) -> list[Object]:
    """Return all rendered objects without digests, which change even for fields without effect."""
    return [
        without_digests(rendered.object) if rendered.driver else rendered.object
        for rendered in rendering.objects
    ]
