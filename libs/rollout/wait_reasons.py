"""Builders of waits, of the engine's data."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from libs.contracts.reports import BEAT_PERIOD
from libs.contracts.waits import AGENT_LATE, RESOLVED_BY, WaitCode
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component
from libs.rollout.views.node import NodeView


def wait(
    code: WaitCode, detail: str, now: Instant, until: float | None = None, *, who: str | None = None
) -> Wait:
    """Return a wait that begins now; `who` defaults to the entry of its code."""
    resolver = RESOLVED_BY[code] if who is None else who
    return Wait(code=code, detail=detail, since=now.at, until=until, who=resolver)


def agent_wait(
    node: NodeView, required: Iterable[tuple[str, Sequence[str]]], now: Instant
) -> Wait | None:
    """Return the wait for a required agent that is missing, silent or too old; None: for none.

    With the agents are the commands and checks that they must support.
    """
    if now.visibility.bus_down_since is not None:
        return wait(WaitCode.BUS, "NATS is unreachable, so agents cannot report", now)
    for name, kinds in required:
        component = node.components.get(name)
        if component is None or component.last_beat is None or component.is_silent(now.at):
            return _unheard_wait(name, component, now)
        if not component.capabilities.issuperset(kinds):
            lacking = ", ".join(kind for kind in kinds if kind not in component.capabilities)
            detail = f"the {name} agent does not support {lacking}: upgrade the agent"
            return wait(WaitCode.AGENT_SILENT, detail, now)
    return None


def _unheard_wait(name: str, component: Component | None, now: Instant) -> Wait:
    """Return the wait for an agent that has sent no heartbeat lately.

    A scheduler that has just started has heard no agent yet, and calls none silent at once.
    """
    if component is not None and not component.is_silent(now.at):
        detail = (
            f"this scheduler has not heard the {name} agent of the node yet: agents send a"
            f" heartbeat every {BEAT_PERIOD:.0f} s"
        )
        return wait(WaitCode.STALE, detail, now, who=AGENT_LATE)
    if component is not None and component.last_beat is not None:
        detail = f"the {name} agent has stopped sending heartbeats"
        if component.flood:
            detail += (
                f": it sent {component.flood:,.0f} messages a second, and such a sender is cut off"
                " NATS for a minute at a time"
            )
        return wait(WaitCode.AGENT_SILENT, detail, now)
    detail = f"the {name} agent has not reported from this node yet"
    return wait(WaitCode.AGENT_SILENT, detail, now, who=AGENT_LATE)


class BlockReason(NamedTuple):
    """Why no candidate of a pool or a queue starts."""

    code: WaitCode
    detail: str
    who: str = ""
    """Empty: the entry of its code."""

    def wait(self, since: float) -> Wait:
        """Return the wait of a node that the reason blocks."""
        who = self.who or RESOLVED_BY[self.code]
        return Wait(code=self.code, detail=self.detail, since=since, who=who)
