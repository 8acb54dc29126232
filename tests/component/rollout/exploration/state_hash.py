"""A hash that is equal for two states of a stage from which the same events can follow.

Times are left out, and generated numbers (uids, revisions) are replaced by the order in which they
are met, because both differ on every path. Pending events count without their times.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from libs.contracts.node import NodeRecord
from libs.contracts.rollout import RolloutStatus
from libs.forecast.stage.objects import NodeMemory, StageMachine, StageNode
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.views.pool import Build
from libs.testing.stage import SimulatedStage

_GENERATED = re.compile(r"^(?:[a-z]+-)*[0-9]+$")
"""Uids and revisions as a stage generates them."""

_LEFT_OUT_OF_STATE = frozenset(
    {
        "recorder", "node_handlers", "machine_handlers", "world", "latencies", "sources", "uids",
        "timers", "timer_entries",
    }
)  # fmt: skip
"""Attributes of a stage's state that do not change what follows; timers are hashed apart."""

_LEFT_OUT: dict[type[msgspec.Struct], tuple[str, ...]] = {
    NodeMemory: ("waiting",),
    NodeRecord: ("seen", "took"),
    StageNode: ("writers",),
    StageMachine: ("counts",),
    RolloutStatus: ("counts",),
}
"""Fields that record how a state was reached, not what follows."""

_UNCHANGED = (bool, Enum, Build, StrategySpec, UpgradePolicy)
"""Types without times and generated numbers."""

# A renamed field must not be hashed unnoticed: that would split equal states.
for _struct, _fields in _LEFT_OUT.items():
    for _field in _fields:
        assert _field in _struct.__struct_fields__, f"{_struct.__name__} has no field {_field}"


def state_hash(stage: SimulatedStage) -> int:
    canonical, attributes = _Canonical(), vars(stage.state)
    assert attributes.keys() >= _LEFT_OUT_OF_STATE, _LEFT_OUT_OF_STATE - attributes.keys()
    parts = [
        (name, canonical.form(value))
        for name, value in sorted(attributes.items())
        if name not in _LEFT_OUT_OF_STATE and not name.startswith("_")
    ]
    pending = [(due.callback.__name__, canonical.form(due.values)) for due in stage.pending()]
    return hash((repr(parts), repr(sorted(pending, key=repr))))


class _Canonical:
    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def form(self, value: Any) -> Any:
        """Return the value without times and with generated numbers replaced."""
        kind = type(value)
        if kind is str:
            generated = value[-1:].isdigit() and _GENERATED.match(value)
            return self._numbered(value) if generated else value
        if kind is int:
            return value if value < 100 else self._numbered(str(value))
        if kind is float:
            return "t"
        if value is None or isinstance(value, _UNCHANGED):
            return value
        if isinstance(value, msgspec.Raw):
            return self.form(msgspec.json.decode(value))
        if isinstance(value, msgspec.Struct):
            left_out = _LEFT_OUT.get(type(value), ())
            return tuple(
                self.form(getattr(value, name))
                for name in value.__struct_fields__
                if name not in left_out
            )
        if isinstance(value, Mapping):
            items = sorted(value.items(), key=_key_text)
            return tuple((self.form(key), self.form(each)) for key, each in items)
        if isinstance(value, set | frozenset):
            return tuple(self.form(each) for each in sorted(value, key=str))
        if isinstance(value, Iterable):
            return tuple(self.form(each) for each in value)
        return getattr(value, "__name__", type(value).__name__)

    def _numbered(self, text: str) -> str:
        return self._numbers.setdefault(text, f"#{len(self._numbers)}")


def _key_text(item: tuple[Any, Any]) -> str:
    return str(item[0])
