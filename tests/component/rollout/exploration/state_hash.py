"""When two moments of a stage are the same for whoever goes on from them.

Times and the numbers that count things up differ on every path, so they are left out or named in
the order in which they are met; what can still happen counts without its hour.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from libs.forecast.stage import Stage

_COUNTED = re.compile(r"^(?:[a-z]+-)*[0-9]+$")
"""Uids and revisions as a stage makes them."""
_STATELESS = frozenset(
    {"recorder", "node_handlers", "machine_handlers", "world", "latencies", "sources", "made"}
)
_UNTOLD = frozenset({"waiting", "seen", "writers", "counts"})
"""What says how it came about, not what follows."""


class _Walk:
    def __init__(self) -> None:
        self._names: dict[str, int] = {}

    def of(self, value: Any) -> Any:
        """The value without times, and with counted things named anew."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            return "t"
        if isinstance(value, int):
            return value if value < 100 else self._named(str(value))
        if isinstance(value, str):
            return self._named(value) if _COUNTED.match(value) else value
        if isinstance(value, msgspec.Raw):
            return self.of(msgspec.json.decode(value))
        if isinstance(value, msgspec.Struct):
            return self._fields(value)
        if isinstance(value, Mapping):
            return tuple(
                (self.of(key), self.of(each)) for key, each in sorted(value.items(), key=_by_text)
            )
        if isinstance(value, set | frozenset):
            return tuple(self.of(each) for each in sorted(value, key=str))
        if isinstance(value, Iterable):
            return tuple(self.of(each) for each in value)
        return getattr(value, "__name__", type(value).__name__)

    def _fields(self, value: msgspec.Struct) -> tuple[Any, ...]:
        return tuple(
            self.of(getattr(value, name)) for name in value.__struct_fields__ if name not in _UNTOLD
        )

    def _named(self, text: str) -> str:
        return f"#{self._names.setdefault(text, len(self._names))}"


def _by_text(item: tuple[Any, Any]) -> str:
    return str(item[0])


def state_hash(stage: Stage) -> int:
    """The same for two stages from which the same can follow."""
    walk, state = _Walk(), stage.state
    parts = [
        (name, walk.of(value))
        for name, value in sorted(vars(state).items())
        if name not in _STATELESS and name != "timers" and not name.startswith("_")
    ]
    pending = [(due.callback.__name__, walk.of(due.values)) for due in stage.pending()]
    return hash((repr(parts), repr(sorted(pending, key=repr))))
