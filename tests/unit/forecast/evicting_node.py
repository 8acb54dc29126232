"""A node whose pods are about to be evicted: the moment at which a fast-forward may begin."""

from typing import Any

from msgspec.structs import replace

from libs.contracts.node import MANAGER, NodeRecord, UpgradeState
from libs.contracts.paths import LEASE, RECORD
from libs.forecast.stage import api
from libs.forecast.stage.fields import OwnedField
from libs.forecast.stage.objects import (
    StageDriverPod,
    StageMachine,
    StageNode,
    TenantPod,
)
from libs.forecast.upgrade_estimate import UpgradeEstimate, estimate_upgrade
from libs.rollout.decide import decide
from libs.rollout.views.pool import PoolView
from libs.testing.stage import Latencies, SimulatedStage, SimulatedState, StageNodeSpec, Tenant
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.builders import pool_with_limits
from tests.unit.rollout.builders import NEW, OLD, POOL, label_of

NODE = "node-1"
OLD_LABEL, NEW_LABEL = label_of(OLD), label_of(NEW)
START = 4096.0
EIGHTH, SIXTEENTH = 0.125, 0.0625
PACE = Latencies(
    write=SIXTEENTH,
    taint=0.25,
    daemon_set=0.25,
    kubelet=EIGHTH,
    slot_poke=EIGHTH,
    device_close=1.0,
    eviction_retry=5.0,
)
"""Latencies in fractions that add up exactly."""
WEB = Tenant(name="web")


class EvictingNode:
    """A stage with one node; a test changes its objects."""

    def __init__(self, *tenants: Tenant) -> None:
        plan = StageNodeSpec(name=NODE, pool=POOL, target=OLD, tenants=tenants)
        self.stage = SimulatedStage(
            (pool_with_limits(),), (plan,), world=SteadyWorld(), start=START, latencies=PACE
        )
        while self.record.state != UpgradeState.POD_DELETION_REQUIRED or self.writing:
            decide_and_advance(self.stage)

    # Objects on the stage.

    @property
    def state(self) -> SimulatedState:
        return self.stage.state

    @property
    def node(self) -> StageNode:
        return self.state.nodes[NODE]

    @property
    def record(self) -> NodeRecord:
        found = api.record_of(self.node)
        assert found is not None
        return found

    @property
    def writing(self) -> int:
        return self.state.memory_of(NODE).writing

    @property
    def machine(self) -> StageMachine:
        return self.state.machines[NODE]

    @property
    def pool(self) -> PoolView:
        return self.state.pools[POOL]

    @property
    def driver(self) -> StageDriverPod:
        return self.machine.drivers[self.machine.admitted]

    @property
    def tenant_pod(self) -> TenantPod:
        return next(iter(self.machine.tenant_pods.values()))

    # Estimates and changes.

    def estimate(self) -> UpgradeEstimate | None:
        return estimate_upgrade(self.state, self.node, self.record)

    def set_field(self, path: str, value: object) -> None:
        self.node.store({**self.node.fields, path: OwnedField(value, (MANAGER,))})

    def remove_field(self, path: str) -> None:
        fields = {field: value for field, value in self.node.fields.items() if field != path}
        self.node.store(fields)

    def set_record(self, **changes: object) -> None:
        self.set_field(RECORD, replace(self.record, **changes))

    def override_world(self, **override: Any) -> None:
        self.state.world = SteadyWorld(overrides=(WorldOverride(**override),))

    def set_tenant(self, **changes: object) -> None:
        self.tenant_pod.tenant = replace(self.tenant_pod.tenant, **changes)

    def renew_slots(self) -> None:
        for key, slot in self.state.slots.items():
            self.state.slots[key] = replace(
                slot, command=replace(slot.command, epoch=self.state.epoch)
            )

    def set_upgrade_policy(self, **changes: object) -> None:
        self.state.change_pool(POOL, upgrade=replace(self.pool.upgrade, **changes))

    def set_build(self, **changes: object) -> None:
        variant, builds = self.node.view.variant, self.pool.builds
        build = replace(builds[NEW][variant], **changes)
        self.state.change_pool(POOL, builds={**builds, NEW: {variant: build}})


def decide_and_advance(stage: SimulatedStage) -> None:
    decision = decide(stage.fleet(), stage.instant())
    stage.carry_out(decision)
    stage.run_until(min(time for time in (stage.next_at, decision.wake_at) if time is not None))


def upgrade_stepwise(node_stage: EvictingNode) -> tuple[float, float, float, float]:
    """Return when the label moves, the driver starts and has loaded, and the lease ends."""
    label_moved_at = 0.0
    while api.value(node_stage.node, LEASE) is not None:
        decide_and_advance(node_stage.stage)
        if not label_moved_at and node_stage.node.view.driver_label == NEW_LABEL:
            label_moved_at = node_stage.stage.now
    loaded = node_stage.machine.loaded
    assert loaded is not None
    return (
        label_moved_at,
        node_stage.driver.status.started or 0.0,
        loaded.driver.loaded_at,
        node_stage.stage.now,
    )
