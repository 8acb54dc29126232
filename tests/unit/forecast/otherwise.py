"""What can be otherwise about a node before its leap: each is one change on the stage."""

from collections.abc import Callable
from typing import Any

from libs.forecast.stage import Tenant
from libs.forecast.stage.objects import Driver, Work
from libs.policy.kinds.upgrades import PodDeletion
from tests.unit.forecast.emptying import NEW_LABEL, SIXTEENTH, Emptying

Change = Callable[[Emptying], None]


def are(what: Callable[[Emptying], object], **values: object) -> Change:
    """Fields of something on the stage."""

    def change(emptying: Emptying) -> None:
        for name, value in values.items():
            setattr(what(emptying), name, value)

    return change


def machine(**values: object) -> Change:
    """Of the machine."""
    return are(lambda emptying: emptying.machine, **values)


def agent(part: str, **values: object) -> Change:
    """Of one of its agents."""
    return are(lambda emptying: emptying.machine.agents[part], **values)


def without(part: str) -> Change:
    """There is no such agent."""
    return lambda emptying: emptying.machine.agents.__delitem__(part)


def driver(**values: object) -> Change:
    """Of the driver that runs."""
    return are(lambda emptying: emptying.driver, **values)


def tenant(**values: object) -> Change:
    """Of the pod."""
    return lambda emptying: emptying.tenant(**values)


def world(**oddity: Any) -> Change:
    """Of what the machine will do."""
    return lambda emptying: emptying.odd(**oddity)


def tried(what: str, times: int = 1) -> Change:
    """It was tried that often before."""
    return lambda emptying: emptying.machine.counts.update({what: times})


def deletion(rules: PodDeletion, gpu: PodDeletion | None = None) -> Change:
    """Of which pods the policy lets go."""
    return lambda emptying: emptying.upgrade(pod_deletion=rules, gpu_pod_deletion=gpu)


def joined(*changes: Change) -> Change:
    """All of them."""

    def change(emptying: Emptying) -> None:
        for each in changes:
            each(emptying)

    return change


def another(*, deleting: bool = False, **values: Any) -> Change:
    """One more pod."""

    def change(emptying: Emptying) -> None:
        emptying.machine.works["uid-more"] = Work(
            uid="uid-more", tenant=Tenant(name="more", **values), deleting=deleting
        )

    return change


def one_more_driver(emptying: Emptying) -> None:
    """It comes before the old one has gone."""
    emptying.machine.drivers["uid-more"] = Driver(
        uid="uid-more", name="driver-more", label=NEW_LABEL, install_digest="install-more"
    )


def only_driver_and_validator(emptying: Emptying) -> None:
    """No other component belongs there."""
    for part in ("plugin", "telemetry", "discovery"):
        del emptying.machine.agents[part]


def long_refused(emptying: Emptying) -> None:
    """For seven of the twelve seconds for which it is."""
    emptying.tenant(guarded=12.0)
    emptying.work.first_refused = emptying.stage.now + 6 * SIXTEENTH - 7.0


def until(seconds: float) -> Change:
    """Its pods have to be gone by then."""
    return lambda emptying: emptying.say(deadline=emptying.stage.now + seconds)
