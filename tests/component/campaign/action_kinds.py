"""The kinds of actions: how many at most, on which target, for how long, how often. Data."""

from collections.abc import Mapping
from typing import Final

import msgspec


class ActionKind(msgspec.Struct, frozen=True, kw_only=True):
    most: int = 1
    on_node: bool = False
    values: tuple[float, float] = (0.0, 0.0)
    often: float = 1.0
    """Relative probability; slow actions are rarer."""


def _on_node(
    most: int = 1, *, values: tuple[float, float] = (0.0, 0.0), often: float = 1.0
) -> ActionKind:
    return ActionKind(most=most, on_node=True, values=values, often=often)


_WHILE: Final = (5.0, 90.0)
"""Seconds for which an action lasts."""

FAULT_ACTIONS: Final[Mapping[str, ActionKind]] = {
    # cluster roles
    "kill-scheduler": ActionKind(most=3, often=2.0),
    "cut-scheduler": ActionKind(most=3, values=(0.0, 12.0), often=3.0),
    "cut-scheduler-at-slot": ActionKind(most=3, values=(0.0, 8.0), often=2.0),
    "rival": ActionKind(often=2.0),
    "two-leaders": ActionKind(most=2, values=(3.0, 30.0), often=3.0),
    "kill-driver-cluster": ActionKind(),
    "kill-discovery-cluster": ActionKind(),
    "kill-validator-cluster": ActionKind(),
    "kill-telemetry-cluster": ActionKind(),
    # agents
    "kill-driver": _on_node(3, often=2.0),
    "kill-validator": _on_node(2),
    "kill-discovery": _on_node(),
    "kill-telemetry": _on_node(),
    "deaf-driver": _on_node(values=(5.0, 200.0)),
    "deaf-validator": _on_node(values=(5.0, 200.0)),
    "deaf-discovery": _on_node(values=(5.0, 200.0)),
    "forget-driver": _on_node(2),
    "forget-validator": _on_node(),
    "lose-disk": _on_node(values=_WHILE),
    # bus and API
    "lose-commands": ActionKind(most=2),
    "bus-away": ActionKind(values=(2.0, 120.0)),
    "drop-watches": ActionKind(most=2),
    "api-restart": ActionKind(),
    "api-away": ActionKind(values=(2.0, 60.0)),
    # machines and pods
    "reboot": _on_node(2),
    "vanish": _on_node(values=(20.0, 150.0)),
    "recreate": _on_node(values=(0.5, 60.0)),
    "delete-driver-pod": _on_node(2),
    "evict-driver-pod": _on_node(),
    "hold-devices": _on_node(values=_WHILE),
}
USER_ACTIONS: Final[Mapping[str, ActionKind]] = {
    "cordon": _on_node(values=_WHILE),
    "uncordon": _on_node(2),
    "drain": _on_node(values=_WHILE),
    "label-state": _on_node(2, values=(0.0, 6.0)),
    "label-driver": _on_node(2, values=(0.0, 3.0)),
    "skip": _on_node(values=_WHILE),
    "keep-cordoned": _on_node(values=_WHILE),
    "retry": _on_node(),
    "ask": _on_node(values=(0.0, 4.0)),
    "lose-record": _on_node(),
    "garble-record": _on_node(),
    "strip-lease": _on_node(),
    "pause": ActionKind(values=_WHILE),
    "freeze": ActionKind(values=_WHILE),
    "auto-off": ActionKind(values=_WHILE),
    "want": ActionKind(most=2, values=(0.0, 3.0)),
    "delete-policy": ActionKind(values=(0.5, 60.0), often=0.5),
    "lose-rollout": ActionKind(often=0.5),
    "job": _on_node(2, values=_WHILE),
    "guard-pods": ActionKind(values=_WHILE),
}
ALL_ACTIONS: Final[Mapping[str, ActionKind]] = {**FAULT_ACTIONS, **USER_ACTIONS}
