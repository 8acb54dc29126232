"""A node whose pods are about to leave, on a stage: the moment at which a leap may begin."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.node import MANAGER, Record, UpgradeState
from libs.forecast.plain import Way, plain
from libs.forecast.stage import NodePlan, Pace, Stage, Tenant, api
from libs.forecast.stage.fields import Held
from libs.forecast.stage.objects import Driver, Machine, Node, Pool, Work
from libs.forecast.stage.paths import LEASE, RECORD
from libs.forecast.stage.state import State
from libs.forecast.world import Oddity, Steady
from libs.rollout.deciding import decide
from tests.unit.forecast.plays import places
from tests.unit.rollout.building import NEW, OLD, POOL, label_of

NODE = "node-1"
OLD_LABEL, NEW_LABEL = label_of(OLD), label_of(NEW)
START = 4096.0
EIGHTH, SIXTEENTH = 0.125, 0.0625
PACE = Pace(
    write=SIXTEENTH, taint=0.25, daemon_set=0.25, kubelet=EIGHTH, poke=EIGHTH, close=1.0, retry=5.0
)
"""In fractions that add up exactly."""
WEB = Tenant(name="web")


class Emptying:
    """One node; whatever a test is about is changed in what is on the stage."""

    def __init__(self, *tenants: Tenant) -> None:
        plan = NodePlan(name=NODE, pool=POOL, runs=OLD, tenants=tenants)
        self.stage = Stage((places(),), (plan,), world=Steady(), start=START, pace=PACE)
        while self.record.state != UpgradeState.POD_DELETION_REQUIRED or self.writing:
            live_on(self.stage)

    # What is there.

    @property
    def state(self) -> State:
        """Of the stage."""
        return self.stage.state

    @property
    def node(self) -> Node:
        """Its object."""
        return self.state.nodes[NODE]

    @property
    def record(self) -> Record:
        """What its Node says."""
        found = api.record_of(self.node)
        assert found is not None
        return found

    @property
    def writing(self) -> int:
        """Requests about it that are not answered."""
        return self.state.knows(NODE).writing

    @property
    def machine(self) -> Machine:
        """The machine under it."""
        return self.state.machines[NODE]

    @property
    def pool(self) -> Pool:
        """Its policy."""
        return self.state.pools[POOL]

    @property
    def driver(self) -> Driver:
        """The driver that runs."""
        return self.machine.drivers[self.machine.admitted]

    @property
    def work(self) -> Work:
        """The first of its pods."""
        return next(iter(self.machine.works.values()))

    # What is asked and changed.

    def way(self) -> Way | None:
        """How it goes on, if that is plain."""
        return plain(self.state, self.node, self.record)

    def put(self, path: str, value: object) -> None:
        """Something else stands on its Node."""
        self.node.fields = {**self.node.fields, path: Held(value, (MANAGER,))}

    def drop(self, path: str) -> None:
        """That stands on its Node no more."""
        self.node.fields = {at: held for at, held in self.node.fields.items() if at != path}

    def say(self, **changes: object) -> None:
        """Its record says something else."""
        self.put(RECORD, replace(self.record, **changes))

    def odd(self, **oddity: Any) -> None:
        """In the world something is otherwise than usual."""
        self.state.world = Steady(oddities=(Oddity(**oddity),))

    def tenant(self, **changes: object) -> None:
        """The first of its pods is another one."""
        self.work.tenant = replace(self.work.tenant, **changes)

    def renew_slots(self) -> None:
        """All slots are of the present leader."""
        for key, slot in self.state.slots.items():
            self.state.slots[key] = replace(
                slot, command=replace(slot.command, epoch=self.state.epoch)
            )

    def upgrade(self, **changes: object) -> None:
        """The policy says something else of upgrades."""
        self.pool.upgrade = replace(self.pool.upgrade, **changes)

    def build(self, **changes: object) -> None:
        """What the target is on this node is another one."""
        build = replace(self.pool.builds[NEW][self.node.variant], **changes)
        self.pool.builds = {**self.pool.builds, NEW: {self.node.variant: build}}


def live_on(stage: Stage) -> None:
    """Decide, and let time pass to whatever comes next."""
    decision = decide(stage.fleet(), stage.instant())
    stage.carry_out(decision)
    stage.until(min(at for at in (stage.next, decision.wake_at) if at is not None))


def step_on(emptying: Emptying) -> tuple[float, float, float, float]:
    """When it moves, its driver starts and has loaded, and it is given back, step by step."""
    moved = 0.0
    while api.value(emptying.node, LEASE) is not None:
        live_on(emptying.stage)
        if not moved and api.driver_label(emptying.node) == NEW_LABEL:
            moved = emptying.stage.now
    loaded = emptying.machine.loaded
    assert loaded is not None
    return moved, emptying.driver.status.started or 0.0, loaded.driver.loaded_at, emptying.stage.now
