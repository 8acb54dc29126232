"""What stands in the way now, and is taken to remain: nobody can know who will remove it, or when.

Disruption budgets that would refuse, and what a preflight found. Must not know how a play goes.
"""

from msgspec.structs import replace

from libs.forecast.stage.objects import Machine
from libs.forecast.stage.state import State
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.node import NodeView

_HOLDER = "holder"
"""A finding that a stage makes by itself, of the pods and processes that it shows."""


def remain(state: State, fleet: Fleet) -> None:
    """Whatever of that the fleet shows is so on the stage, for as long as it is played."""
    for node in fleet.nodes.values():
        machine = state.machines[node.name]
        _refused(machine, node)
        _found(machine, node)


def _refused(machine: Machine, node: NodeView) -> None:
    for pod in node.pods or ():
        work = machine.works.get(pod.uid)
        if work is not None and pod.budget:
            work.tenant = replace(work.tenant, guarded=None)


def _found(machine: Machine, node: NodeView) -> None:
    answer = node.preflight.answer if node.preflight is not None else None
    if answer is not None:
        findings = (one for one in answer.findings if one.code != _HOLDER)
        machine.obstacles = (*machine.obstacles, *findings)
