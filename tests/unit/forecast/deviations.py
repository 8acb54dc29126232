"""Deviations of a node before its fast-forward: each is one change on the stage."""

from collections.abc import Callable
from typing import Any

from libs.forecast.stage.objects import StageDriverPod, TenantPod
from libs.policy.kinds.upgrade_policy import PodDeletion
from libs.testing.stage import Tenant
from tests.unit.forecast.evicting_node import NEW_LABEL, SIXTEENTH, EvictingNode
from tests.unit.rollout.builders import POOL

Change = Callable[[EvictingNode], None]


def set_fields(stage_object: Callable[[EvictingNode], object], **values: object) -> Change:

    def change(node_stage: EvictingNode) -> None:
        for name, value in values.items():
            setattr(stage_object(node_stage), name, value)

    return change


def machine(**values: object) -> Change:
    return set_fields(lambda node_stage: node_stage.machine, **values)


def node_view(**values: object) -> Change:
    return lambda node_stage: node_stage.node.show(**values)


def pool(**values: object) -> Change:
    return lambda node_stage: node_stage.state.change_pool(POOL, **values)


def agent(part: str, **values: object) -> Change:
    return set_fields(lambda node_stage: node_stage.machine.agents[part], **values)


def without(part: str) -> Change:
    return lambda node_stage: node_stage.machine.agents.__delitem__(part)


def driver(**values: object) -> Change:
    return set_fields(lambda node_stage: node_stage.driver, **values)


def tenant(**values: object) -> Change:
    return lambda node_stage: node_stage.set_tenant(**values)


def world(**override: Any) -> Change:
    return lambda node_stage: node_stage.override_world(**override)


def add_attempts(process: str, times: int = 1) -> Change:
    return lambda node_stage: node_stage.machine.counts.update({process: times})


def deletion(rules: PodDeletion, gpu: PodDeletion | None = None) -> Change:
    return lambda node_stage: node_stage.set_upgrade_policy(
        pod_deletion=rules, gpu_pod_deletion=gpu
    )


def combine(*changes: Change) -> Change:

    def change(node_stage: EvictingNode) -> None:
        for apply_change in changes:
            apply_change(node_stage)

    return change


def add_tenant_pod(*, deleting: bool = False, **values: Any) -> Change:

    def change(node_stage: EvictingNode) -> None:
        node_stage.machine.tenant_pods["uid-more"] = TenantPod(
            uid="uid-more", tenant=Tenant(name="more", **values), deleting=deleting
        )

    return change


def one_more_driver(node_stage: EvictingNode) -> None:
    node_stage.machine.drivers["uid-more"] = StageDriverPod(
        uid="uid-more", name="driver-more", label=NEW_LABEL, install_digest="install-more"
    )


def only_driver_and_validator(node_stage: EvictingNode) -> None:
    for part in ("plugin", "telemetry", "discovery"):
        del node_stage.machine.agents[part]


def long_refused(node_stage: EvictingNode) -> None:
    node_stage.set_tenant(eviction_refused_for=12.0)
    node_stage.tenant_pod.first_refused = node_stage.stage.now + 6 * SIXTEENTH - 7.0


def until(seconds: float) -> Change:
    return lambda node_stage: node_stage.set_record(deadline=node_stage.stage.now + seconds)
