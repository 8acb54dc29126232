"""The complete decision (docs/states.md#deciding): steps of nodes, grants of pools, all waits."""

from msgspec.structs import replace

from libs.rollout.decide.decider import Decider, DecisionDelta
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant

__all__ = ["Decider", "DecisionDelta", "decide"]


def decide(fleet: Fleet, now: Instant) -> Decision:
    """Decide for one moment. A `Decider` decides the same incrementally."""
    decider = Decider(fleet)
    delta = decider.decide(now)
    waits = decider.waits
    return replace(delta, waits={name: waits[name] for name in sorted(waits)})
