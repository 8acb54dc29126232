"""What a plain way is: one node that goes it, and what about it makes it another one, or none."""

from typing import NamedTuple

import pytest

from libs.contracts.node import Operation, UpgradeState
from libs.forecast.plain import Way
from libs.forecast.stage.objects import Phase
from libs.forecast.stage.paths import INITIALLY_CORDONED, KEEP_CORDONED, SAFE_LOAD
from libs.forecast.world import NEVER, Ending, Span, Verdict
from libs.policy.kinds.upgrades import Drain, PodDeletion
from libs.policy.wanted import Method
from libs.rollout import limits
from libs.rollout.views.machine import Shelter
from libs.rollout.views.pool import Readiness
from tests.unit.forecast.emptying import (
    EIGHTH,
    NEW_LABEL,
    PACE,
    SIXTEENTH,
    WEB,
    Emptying,
    step_on,
)
from tests.unit.forecast.otherwise import (
    Change,
    agent,
    another,
    are,
    deletion,
    driver,
    joined,
    long_refused,
    machine,
    one_more_driver,
    only_driver_and_validator,
    tenant,
    tried,
    until,
    without,
    world,
)
from tests.unit.rollout.building import NEW

FREED = 5 * SIXTEENTH + SIXTEENTH + 2.0
"""Until the pod is gone: five slots of an earlier leader, the request, and its end."""
LETTING_GO = 4 * SIXTEENTH + EIGHTH + 1.0
"""Then, until the label moves."""
HEARD = 2 * EIGHTH + EIGHTH
"""Then, until the kubelet hears of it, of the old driver's end and of the new driver."""
OUT = 1.0 + SIXTEENTH + EIGHTH + 3.0
"""Then, until the old driver has stopped and its modules are out."""
SWAPPED = HEARD + OUT + EIGHTH
"""From the move of the label until the new driver starts."""
LOADED, READY, VALIDATED = 20.0, 1.0, 5 * SIXTEENTH + EIGHTH + 10.0
GIVEN_BACK = 3 * SIXTEENTH


class Told(NamedTuple):
    """What is said of a way; seconds from now."""

    moves: float = FREED + LETTING_GO
    started: float = FREED + LETTING_GO + SWAPPED
    loaded: float = FREED + LETTING_GO + SWAPPED + LOADED
    ends: float = FREED + LETTING_GO + SWAPPED + LOADED + READY + VALIDATED + GIVEN_BACK
    unloads: int = 1
    loads: int = 1
    leaving: int = 1


def later(
    emptied: float = 0.0, started: float = 0.0, loaded: float = 0.0, ended: float = 0.0, **said: int
) -> Told:
    """The usual way, each part of which takes so much longer."""
    usual, started, loaded = Told(), emptied + started, emptied + started + loaded
    return Told(
        usual.moves + emptied,
        usual.started + started,
        usual.loaded + loaded,
        usual.ends + loaded + ended,
        **said,
    )


def told(emptying: Emptying, way: Way | None) -> Told | None:
    """All of it that differs from case to case."""
    if way is None:
        return None
    times = (at - emptying.stage.now for at in (way.moves, way.started, way.loaded, way.ends))
    return Told(*times, unloads=way.unloads, loads=way.loads, leaving=len(way.leaving))


STRICT = PodDeletion()
LOAD, RUN, VALIDATION = (f"{what} {NEW_LABEL}" for what in ("load", "run", "validation"))
TO_START = SWAPPED + LOADED + READY
"""From the move of the label until the driver is ready."""

NONE: dict[str, Change] = {
    # Another operation, or another moment of it.
    "a restart": lambda node: node.say(operation=Operation.RESTART),
    "waiting for jobs": lambda node: node.say(state=UpgradeState.WAIT_FOR_JOBS_REQUIRED),
    "a cordon that was there": lambda node: node.say(cordon_adopted=True),
    "to be kept cordoned": lambda node: node.put(KEEP_CORDONED, "true"),
    "to load when it is safe": lambda node: node.put(SAFE_LOAD, "driver-1"),
    "cordoned before": lambda node: node.put(INITIALLY_CORDONED, "true"),
    # Another policy.
    "no pool": lambda node: node.state.pools.clear(),
    "a drain": lambda node: node.upgrade(drain=Drain(enable=True)),
    "a driver on the host": are(lambda node: node.pool, method=Method.HOST),
    "no build of the target": lambda node: node.say(target="target-else"),
    "no build for the variant": are(lambda node: node.node, variant="rhel9"),
    "an unsettled build": lambda node: node.build(readiness=Readiness.UNSETTLED),
    "no DaemonSet": lambda node: node.build(readiness=Readiness.MISSING),
    "a build with another label": lambda node: node.build(label="label-else"),
    # Another machine.
    "not ready": are(lambda node: node.node, ready=False),
    "down": machine(up=False),
    "without a kubelet": machine(hears=False),
    "without the bus": machine(connected=False),
    "nothing loaded": machine(loaded=None),
    "a process on the host": machine(host_processes=1),
    "no validator": without("validator"),
    "no driver agent": without("driver"),
    "a dead plugin": agent("plugin", alive=False),
    "a telemetry that hangs": agent("telemetry", hung=True),
    "a validator at work": agent("validator", running=True),
    "a silent driver agent": agent("driver", silent_at=9000.0),
    # Another driver.
    "no driver": machine(admitted=""),
    "two drivers": one_more_driver,
    "a driver that has the label already": driver(label=NEW_LABEL),
    "a driver that is deleted": driver(deleting=True),
    "a driver that loads": driver(phase=Phase.LOADING),
    "a driver that is off the machine": driver(on_machine=False),
    # Pods that are not just evicted.
    "an operand": tenant(shelter=Shelter.OPERAND),
    "an operand without a GPU": another(gpus=0, shelter=Shelter.OPERAND),
    "a pod of a DaemonSet": tenant(shelter=Shelter.DAEMON_SET),
    "a pod that is leaving": are(lambda node: node.work, deleting=True),
    "a job": tenant(remaining=3600.0),
    "a bare pod": joined(tenant(bare=True), deletion(PodDeletion(delete_empty_dir=True))),
    "a pod with an emptyDir": joined(tenant(empty_dir=True), deletion(PodDeletion(force=True))),
    "a bare pod that uses a GPU": joined(
        tenant(bare=True), deletion(PodDeletion(force=True), gpu=STRICT)
    ),
    "a pod that is refused for ever": tenant(guarded=None),
    "a pod that never stops": tenant(stops=None),
    "a deadline that is just reached": until(FREED),
    # What goes wrong.
    "an image that never comes": world(pull=NEVER),
    "a driver that is never ready": world(ready=NEVER),
    "a driver that crashes later": world(run=Ending(86_400.0, 1)),
    "modules that are always in use": world(unload=Ending(2.0, 1)),
    "an unload that hangs": world(unload=Ending(None)),
    "an unload that ends at the limit": world(unload=Ending(limits.UNLOAD)),
    "a driver that does not load three times": world(load=Ending(5.0, 1), attempts=3),
    "a load that hangs": world(load=Ending(None)),
    "ready at the limit": world(load=Ending(limits.DRIVER_START - TO_START + LOADED)),
    "a validation that fails": world(validation=Verdict(4.0, "cuda")),
    "a validation that hangs": world(validation=Verdict(None)),
    "validated at the limit": world(validation=Verdict(limits.VALIDATION)),
}

SAME: dict[str, Change] = {
    "no deadline": lambda node: node.say(deadline=None),
    "a deadline that is just not reached": until(FREED + SIXTEENTH),
    "a bare pod, with force": tenant(bare=True),
    "a pod with an emptyDir that may be deleted": tenant(empty_dir=True),
    "rules that forbid nothing here": deletion(STRICT),
    "a bare pod that uses a GPU, with force for those": joined(
        tenant(bare=True), deletion(STRICT, gpu=PodDeletion(force=True))
    ),
    "a bare pod without a GPU": joined(another(gpus=0, bare=True), deletion(STRICT)),
    "a pod without a GPU that is leaving": another(gpus=0, deleting=True),
    "a pod of a DaemonSet without a GPU": another(gpus=0, shelter=Shelter.DAEMON_SET),
    "a bad first load that is over": joined(world(load=Ending(5.0, 1), attempts=1), tried(LOAD)),
    "a bad first run that is over": joined(world(run=Ending(60.0), attempts=1), tried(RUN)),
    "a bad first validation that is over": joined(
        world(validation=Verdict(4.0, "cuda"), attempts=1), tried(VALIDATION)
    ),
}

LATER: dict[str, tuple[Change, Told]] = {
    "no pod": (lambda node: node.machine.works.clear(), later(-SIXTEENTH - 2.0, leaving=0)),
    "two pods": (another(stops=9.0), later(7.0, leaving=2)),
    "no slot of an earlier leader": (
        lambda node: node.renew_slots(),
        later(-5 * SIXTEENTH),
    ),
    "no slot": (lambda node: node.state.slots.clear(), later(-5 * SIXTEENTH)),
    "no other agents": (only_driver_and_validator, later(-3 * SIXTEENTH)),
    "refused for ten seconds": (tenant(guarded=10.0), later(10.0)),
    "refused for eleven seconds": (tenant(guarded=11.0), later(15.0)),
    "refused for a while already": (long_refused, later(5.0)),
    "refused long ago": (are(lambda node: node.work, first_refused=0.0), later()),
    "an image that takes its time": (world(pull=Span(30.0)), later(started=30.0 - OUT)),
    "a driver that does not stop": (world(stop=NEVER), later(started=PACE.grace - 1.0)),
    "a driver that stops late": (world(stop=Span(100.0)), later(started=PACE.grace - 1.0)),
    "a driver that stops in time": (world(stop=Span(6.0)), later(started=5.0)),
    "modules in use": (
        world(unload=Ending(2.0, 1), attempts=2),
        later(started=2 * (2.0 + PACE.busy_retry), unloads=3),
    ),
    "modules in use once more": (
        joined(world(unload=Ending(2.0, 1), attempts=2), tried("unload")),
        later(started=2.0 + PACE.busy_retry, unloads=2),
    ),
    "an unload that ends just in time": (
        world(unload=Ending(limits.UNLOAD - 1.0)),
        later(started=limits.UNLOAD - 4.0),
    ),
    "a driver that loads the second time": (
        world(load=Ending(5.0, 1), attempts=1),
        later(started=5.0 + PACE.restart, loads=2),
    ),
    "a driver that loads the third time": (
        world(load=Ending(5.0, 1), attempts=2),
        later(started=5.0 + PACE.restart + 5.0 + 2 * PACE.restart, loads=3),
    ),
    "a driver that is ready late": (world(ready=Span(31.0)), later(ended=30.0)),
    "ready just in time": (
        world(load=Ending(limits.DRIVER_START - TO_START + LOADED - 1.0)),
        later(loaded=limits.DRIVER_START - TO_START - 1.0),
    ),
    "validated just in time": (
        world(validation=Verdict(limits.VALIDATION - 1.0)),
        later(ended=limits.VALIDATION - 11.0),
    ),
}


def test_a_usual_node_goes_a_plain_way() -> None:
    emptying = Emptying(WEB)
    way = emptying.way()
    assert way is not None
    assert told(emptying, way) == Told()
    assert way.record == emptying.record
    assert way.build == emptying.pool.builds[NEW][emptying.node.variant]
    assert way.leaving == (emptying.work.uid,)


@pytest.mark.parametrize("what", NONE)
def test_with_this_it_is_no_plain_way(what: str) -> None:
    emptying = Emptying(WEB)
    NONE[what](emptying)
    assert emptying.way() is None


@pytest.mark.parametrize("what", SAME)
def test_with_this_it_is_the_usual_way(what: str) -> None:
    emptying = Emptying(WEB)
    SAME[what](emptying)
    assert told(emptying, emptying.way()) == Told()


@pytest.mark.parametrize("what", LATER)
def test_with_this_it_takes_another_time(what: str) -> None:
    emptying = Emptying(WEB)
    change, expected = LATER[what]
    change(emptying)
    assert told(emptying, emptying.way()) == expected


EITHER = {**SAME, **{what: change for what, (change, _) in LATER.items()}}
del EITHER["no other agents"]
"""A leap takes the time in which they would let go, whether they are there or not."""


@pytest.mark.parametrize("what", EITHER)
def test_step_by_step_it_takes_as_long(what: str) -> None:
    emptying = Emptying(WEB)
    EITHER[what](emptying)
    way = emptying.way()
    assert way is not None
    assert step_on(emptying) == (way.moves, way.started, way.loaded, way.ends)
