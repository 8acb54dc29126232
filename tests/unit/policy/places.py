"""Where policies take effect: the values of what is rendered, of pools and operands, by place."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from libs.policy.wanted import InstallMethod, operands_of
from tests.unit.policy.situations import UBUNTU, Object, Situation, node
from tests.unit.policy.test_effects import render

Places = dict[str, Any]
Changes = dict[str, tuple[Any, Any]]
"""By place: the value before, and after."""

_NAMES: Final = ("name", "mountPath", "key")
_DIGESTS: Final = re.compile(
    r"sluice\.dev/(?:driver|target|install-digest)\b|^DaemonSet driver metadata\.name$"
    r"|DRIVER_CONFIG_DIGEST"
)
"""What changes with every field of a driver."""


def places(objects: list[Object]) -> Places:
    """Return all that becomes of policies, by place: `DaemonSet sluice-dra spec.template…`."""
    situation = Situation(objects, [UBUNTU, node("c", rack="8")])
    pools, found = situation.pools(), dict[str, Any]()
    for rendered in render(objects).objects:
        name = "driver" if rendered.driver else rendered.name
        for path, value in _leaves(rendered.object, ""):
            found[f"{rendered.object['kind']} {name} {path}"] = value
    for pool in pools.pools:
        for part in ("upgrade", "strategy", "held", "nodes"):
            value = msgspec.to_builtins(getattr(pool, part))
            found |= {f"pool {pool.key} {path}": each for path, each in _leaves(value, part)}
        if pool.driver.method is InstallMethod.HOST:
            found[f"pool {pool.key} version"] = pool.driver.version
            found[f"pool {pool.key} cuda"] = pool.driver.cuda
    operands = msgspec.to_builtins(operands_of(pools.cluster))
    found |= {f"operands {path}": value for path, value in _leaves(operands, "")}
    return {place: value for place, value in found.items() if not _DIGESTS.search(place)}


def changes(before: Places, after: Places) -> Changes:
    """Return what differs; an object that comes or goes is one place, `+` or `-` and its name."""
    found = {
        place: (before.get(place), after.get(place))
        for place in sorted({*before, *after})
        if before.get(place) != after.get(place)
    }
    whole = {place.removesuffix(" kind") for place in found if place.endswith(" kind")}
    inside = tuple(f"{each} " for each in whole)
    signs = {f"{'-' if f'{each} kind' in before else '+'}{each}": (None, None) for each in whole}
    return signs | {key: each for key, each in found.items() if not key.startswith(inside or "/")}


def values_of(value: Any) -> list[Any]:
    """Return what is in a value of a field, without names of fields and variables."""
    return [each for _, each in _leaves(value, "")]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        if value.keys() == {"name", "value"}:
            yield path, value["value"]
            return
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple) and value:
        for number, each in enumerate(value):
            yield from _leaves(each, f"{path}[{_name(each, number)}]")
    else:
        yield path, value


def _name(value: Any, number: int) -> str:
    named = value if isinstance(value, dict) else {}
    return next((str(named[key]) for key in _NAMES if key in named), str(number))
