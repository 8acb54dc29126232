"""A hash that is equal for two states of a stage from which the same events can follow.

Times are left out, and generated numbers (uids, revisions) are replaced by the order in which they
are met, because both differ on every path. Pending events count without their times.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from libs.contracts.node import NodeRecord
from libs.contracts.rollout import RolloutStatus
from libs.forecast.stage.objects import NodeMemory, StageMachine, StageNode
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build
from libs.testing.stage import SimulatedStage

_V = TypeVar("_V")
_R = TypeVar("_R")

_GENERATED = re.compile(r"^(?:[a-z]+-)*[0-9]+$")
"""Uids and revisions as a stage generates them."""

_LEFT_OUT_OF_STATE = frozenset(
    {
        "recorder", "node_handlers", "machine_handlers", "world", "latencies", "sources", "uids",
        "timers", "timer_entries", "leader_ahead",
    }
)  # fmt: skip
"""Attributes of a stage that do not change what follows; timers and clocks are hashed apart."""

_LEFT_OUT: dict[type[msgspec.Struct], tuple[str, ...]] = {
    NodeMemory: ("waiting",),
    NodeRecord: ("seen", "took"),
    StageNode: ("writers",),
    NodeView: ("last_managers",),
    StageMachine: ("counts",),
    RolloutStatus: ("counts",),
}
"""Fields that record how a state was reached, not what follows."""

_UNCHANGED = (Build, StrategySpec, UpgradePolicy)
"""Types without times and generated numbers."""

# A renamed field must not be hashed unnoticed: that would split equal states.
for _struct, _fields in _LEFT_OUT.items():
    for _field in _fields:
        assert _field in _struct.__struct_fields__, f"{_struct.__name__} has no field {_field}"


def state_hash(stage: SimulatedStage) -> int:
    attributes = vars(stage.state)
    assert attributes.keys() >= _LEFT_OUT_OF_STATE, _LEFT_OUT_OF_STATE - attributes.keys()
    numbers: dict[str, int] = {}
    state = _Form()
    for name, value in sorted(attributes.items()):
        if name not in _LEFT_OUT_OF_STATE and not name.startswith("_"):
            state.add(value)
    state.add(f"clock {stage.state.leader_ahead}")  # as it is, since it is no time that passes
    whole = state.numbered(numbers)
    pending: list[tuple[Any, ...]] = []
    for due in stage.pending():
        values = _Form()
        values.add(due.values)
        pending.append((due.callback.__name__, *values.numbered(numbers)))
    return hash((whole, tuple(sorted(pending, key=repr))))


class _Form:
    """A value without its times, flat, and apart from it the numbers that a stage generated."""

    def __init__(self) -> None:
        self.shape: list[Any] = []
        self.generated: list[str] = []

    def numbered(self, numbers: dict[str, int]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Replace generated numbers by the order in which they are met."""
        found = tuple(numbers.setdefault(each, len(numbers)) for each in self.generated)
        return tuple(self.shape), found

    def add(self, value: Any) -> None:
        kind = type(value)
        add = _ADD.get(kind)
        if add is None:
            add = _ADD[kind] = _how_to_add(kind)
        add(self, value)

    def add_generated(self, number: str) -> None:
        self.shape.append("#")
        self.generated.append(number)


_Add = Callable[[_Form, Any], None]


def _how_to_add(kind: type) -> _Add:
    if issubclass(kind, Enum):
        return lambda form, value: form.shape.append(value.name)
    if issubclass(kind, _UNCHANGED):
        return lambda form, value: form.shape.append(_once(value, repr))
    if issubclass(kind, msgspec.Struct):
        left_out = _LEFT_OUT.get(kind, ())
        fields = [name for name in kind.__struct_fields__ if name not in left_out]
        return _add_frozen(fields) if kind.__struct_config__.frozen else _add_fields(fields)
    if issubclass(kind, Mapping):
        return _add_mapping
    if issubclass(kind, set | frozenset):
        return lambda form, value: _add_sequence(form, sorted(value, key=str))
    if issubclass(kind, Iterable):
        return _add_sequence
    return lambda form, value: form.shape.append(getattr(value, "__name__", kind.__name__))


def _add_text(form: _Form, value: str) -> None:
    if value[-1:].isdigit() and _GENERATED.match(value):
        form.add_generated(value)
    else:
        form.shape.append(value)


def _add_integer(form: _Form, value: int) -> None:
    if value < 100:
        form.shape.append(value)
    else:
        form.add_generated(str(value))


def _add_fields(fields: Iterable[str]) -> _Add:
    names = tuple(fields)

    def add(form: _Form, value: msgspec.Struct) -> None:
        # Most fields are plain: they are added here, without a call for each.
        append = form.shape.append
        for name in names:
            each = getattr(value, name)
            kind = type(each)
            if each is None or kind is bool:
                append(each)
            elif kind is float:
                append("t")
            elif kind is str and not each[-1:].isdigit():
                append(each)
            else:
                form.add(each)

    return add


def _add_frozen(fields: Iterable[str]) -> _Add:
    """Add a struct that cannot change: most are met again in the states that follow."""
    add_fields = _add_fields(fields)

    def compress(value: msgspec.Struct) -> tuple[int, list[str]]:
        own = _Form()
        add_fields(own, value)
        return hash(tuple(own.shape)), own.generated

    def add(form: _Form, value: msgspec.Struct) -> None:
        shape, generated = _once(value, compress)
        form.shape.append(shape)
        form.generated.extend(generated)

    return add


def _add_mapping(form: _Form, value: Mapping[Any, Any]) -> None:
    form.shape.append(len(value))
    for key, each in sorted(value.items(), key=_key_text):
        form.add(key)
        form.add(each)


def _add_sequence(form: _Form, value: Iterable[Any]) -> None:
    values = tuple(value)
    form.shape.append(len(values))
    for each in values:
        form.add(each)


def _key_text(item: tuple[Any, Any]) -> str:
    return str(item[0])


_ADD: dict[type, _Add] = {
    str: _add_text,
    int: _add_integer,
    bool: lambda form, value: form.shape.append(value),
    float: lambda form, _: form.shape.append("t"),
    type(None): lambda form, _: form.shape.append(None),
    msgspec.Raw: lambda form, value: form.add(msgspec.json.decode(value)),
    tuple: _add_sequence,
    list: _add_sequence,
    dict: _add_mapping,
}

_KEPT: Final = 50_000
_kept: dict[int, tuple[Any, Any]] = {}
"""By id: a value, which is kept so that its id stays its own, and what was made of it."""


def _once(value: _V, make: Callable[[_V], _R]) -> _R:
    """Return what is made of a value that does not change, made once."""
    found = _kept.get(id(value))
    if found is None:
        if len(_kept) >= _KEPT:
            _kept.clear()
        found = _kept[id(value)] = (value, make(value))
    return found[1]
