"""What can be otherwise about a node before its leap: each is one change on the stage."""

from collections.abc import Callable
from typing import Any

from libs.forecast.stage import Tenant
from libs.forecast.stage.objects import StageDriverPod, TenantPod
from libs.policy.kinds.upgrade_policy import PodDeletion
from tests.unit.forecast.evicting_node import NEW_LABEL, SIXTEENTH, EvictingNode

Change = Callable[[EvictingNode], None]


def set_fields(what: Callable[[EvictingNode], object], **values: object) -> Change:
    """Fields of something on the stage."""

    def change(emptying: EvictingNode) -> None:
        for name, value in values.items():
            setattr(what(emptying), name, value)

    return change


def machine(**values: object) -> Change:
    """Of the machine."""
    return set_fields(lambda emptying: emptying.machine, **values)


def agent(part: str, **values: object) -> Change:
    """Of one of its agents."""
    return set_fields(lambda emptying: emptying.machine.agents[part], **values)


def without(part: str) -> Change:
    """There is no such agent."""
    return lambda emptying: emptying.machine.agents.__delitem__(part)


def driver(**values: object) -> Change:
    """Of the driver that runs."""
    return set_fields(lambda emptying: emptying.driver, **values)


def tenant(**values: object) -> Change:
    """Of the pod."""
    return lambda emptying: emptying.set_tenant(**values)


def world(**oddity: Any) -> Change:
    """Of what the machine will do."""
    return lambda emptying: emptying.override_world(**oddity)


def add_attempts(what: str, times: int = 1) -> Change:
    """It was tried that often before."""
    return lambda emptying: emptying.machine.counts.update({what: times})


def deletion(rules: PodDeletion, gpu: PodDeletion | None = None) -> Change:
    """Of which pods the policy lets go."""
    return lambda emptying: emptying.set_upgrade_policy(pod_deletion=rules, gpu_pod_deletion=gpu)


def combine(*changes: Change) -> Change:
    """All of them."""

    def change(emptying: EvictingNode) -> None:
        for each in changes:
            each(emptying)

    return change


def add_tenant_pod(*, deleting: bool = False, **values: Any) -> Change:
    """One more pod."""

    def change(emptying: EvictingNode) -> None:
        emptying.machine.tenant_pods["uid-more"] = TenantPod(
            uid="uid-more", tenant=Tenant(name="more", **values), deleting=deleting
        )

    return change


def one_more_driver(emptying: EvictingNode) -> None:
    """It comes before the old one has gone."""
    emptying.machine.drivers["uid-more"] = StageDriverPod(
        uid="uid-more", name="driver-more", label=NEW_LABEL, install_digest="install-more"
    )


def only_driver_and_validator(emptying: EvictingNode) -> None:
    """No other component belongs there."""
    for part in ("plugin", "telemetry", "discovery"):
        del emptying.machine.agents[part]


def long_refused(emptying: EvictingNode) -> None:
    """For seven of the twelve seconds for which it is."""
    emptying.set_tenant(eviction_refused_for=12.0)
    emptying.tenant_pod.first_refused = emptying.stage.now + 6 * SIXTEENTH - 7.0


def until(seconds: float) -> Change:
    """Its pods have to be gone by then."""
    return lambda emptying: emptying.set_record(deadline=emptying.stage.now + seconds)
