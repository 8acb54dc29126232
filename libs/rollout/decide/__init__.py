"""The whole of a decision (docs/states.md#deciding): steps of nodes, grants of pools, all waits.

`decide` is for one moment. `Deciding` keeps what it found, looks again only at what changed or came
due, and always says what `decide` would say. Must not know who carries it out.
"""

from msgspec.structs import replace

from libs.rollout.decide.decider import Decider, DecisionDelta
from libs.rollout.decision import Decision
from libs.rollout.views.fleet import Fleet, Instant

__all__ = ["Decider", "DecisionDelta", "decide"]


def decide(fleet: Fleet, now: Instant) -> Decision:
    """What is done now, and why everybody else waits."""
    deciding = Decider(fleet)
    news = deciding.decide(now)
    waits = deciding.waits
    return replace(news, waits={name: waits[name] for name in sorted(waits)})
