"""A stage with one node; tests decide each step of an upgrade."""

from typing import Any

from libs.contracts.commands import Command, CommandBody, Order
from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord
from libs.contracts.reports import Progress, Result
from libs.forecast.stage.objects import StageMachine
from libs.forecast.world import WorldModel
from libs.rollout.decision import (
    Action,
    Decision,
    NodeApplyConfiguration,
    Step,
    WriteNode,
    WriteSlot,
)
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from libs.testing.stage import (
    EffectFault,
    SimulatedStage,
    StageFaults,
    StageNodeSpec,
    Tenant,
    UserActions,
)
from libs.testing.stage.worlds import SteadyWorld
from tests.unit.rollout.builders import NEW, OLD, POOL, label_of, pool

START = 1_000_000.0
TOKEN = 2
"""The token of the lease that tests write; the upgrade before the test had token 1."""
NODE = "n1"
OLD_LABEL, NEW_LABEL = label_of(OLD), label_of(NEW)


class StageScenario:
    """A stage with one node, with users and faults that act on it."""

    def __init__(
        self,
        *,
        world: WorldModel | None = None,
        runs: str = OLD,
        tenants: tuple[Tenant, ...] = (),
        pools: tuple[PoolView, ...] | None = None,
        **plan: Any,
    ) -> None:
        self.stage = SimulatedStage(
            pools if pools is not None else (pool(rollout=None),),
            [StageNodeSpec(name=NODE, pool=POOL, target=runs, tenants=tenants, **plan)],
            world=world or SteadyWorld(),
            start=START,
        )
        self.users = UserActions(self.stage.state)
        self.faults = StageFaults(self.stage.state)

    # Views.

    @property
    def node(self) -> NodeView:
        return not_none(self.stage.node(NODE))

    @property
    def machine(self) -> StageMachine:
        return self.stage.state.machines[NODE]

    @property
    def elapsed(self) -> float:
        return round(self.stage.now - START, 3)

    def result(self, part: str) -> Result:
        return not_none(self.node.components[part].result)

    def progress(self, part: str) -> Progress:
        return not_none(self.node.components[part].progress)

    # Actions.

    def command(self, part: str, body: CommandBody, *, advance: float = 0.0, **fields: Any) -> None:
        """Write the slot of a component, and let time pass after it was read."""
        self.carry_out(self.slot(part, body, **fields))
        self.advance(advance)

    def carry_out(
        self, *actions: Action, fault: EffectFault | None = None, wait: float = 0.5
    ) -> None:
        decision = Decision(steps={NODE: Step(actions=actions, because="a step of the test")})
        self.stage.carry_out(decision, faults_of=(lambda _: fault) if fault is not None else None)
        self.advance(wait)

    def advance(self, seconds: float) -> None:
        self.stage.run_until(self.stage.now + seconds)

    def write(self, **applied: Any) -> WriteNode:
        node = self.node
        assert node.record is None or isinstance(node.record, NodeRecord)
        assert node.lease is None or isinstance(node.lease, NodeLease)
        current: dict[str, Any] = {
            "state": node.state,
            "driver_label": node.driver_label,
            "record": node.record,
            "lease": node.lease,
            "unschedulable": True if node.cordoned else None,
        }
        configuration = NodeApplyConfiguration(**current | applied)
        return WriteNode(uid=node.uid, revision=node.revision, applied=configuration)

    def lease(self, token: int = TOKEN) -> NodeLease:
        return NodeLease(
            node_uid=self.node.uid, owner=LeaseOwner.UPGRADE, token=token, since=self.stage.now
        )

    def slot(self, part: str, body: CommandBody, *, op: int = 1, **fields: Any) -> WriteSlot:
        node = self.node
        order = fields.pop("order", Order(TOKEN, op))
        defaults: dict[str, Any] = {
            "node": node.name,
            "node_uid": node.uid,
            "boot_id": node.boot_id,
            "epoch": 1,
            "deadline": self.stage.now + 120.0,
        }
        return WriteSlot(component=part, command=Command.of(body, order=order, **defaults | fields))

    def move_label(self, label: str = NEW_LABEL) -> str:
        old = self.node.driver_pods[0].uid if self.node.driver_pods else ""
        self.carry_out(self.write(driver_label=label, lease=self.lease(), unschedulable=True))
        return old

    def run_until_gone(self, uid: str) -> None:
        while any(pod.uid == uid for pod in self.node.driver_pods):
            self.stage.advance()
