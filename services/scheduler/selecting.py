"""Whether labels match a selector as people write it: `app=train,tier in (a, b)`. Pure.

Only selectors that `libs.policy` lets through come here; what cannot be read selects nothing.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

Labels = Mapping[str, str]
_Term = Callable[[Labels], bool]

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<how>in|notin)\s*\((?P<values>[^)]*)\)")
_SAME: Final = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<how>==|=|!=)\s*(?P<value>\S*)")
_SIZE: Final = re.compile(r"(?P<key>[^\s<>]+)\s*(?P<how>[<>])\s*(?P<value>[0-9]+)")
_COMMA: Final = re.compile(r",(?![^(]*\))")


def selects(selector: str, labels: Labels) -> bool:
    """Whether it does; an empty selector selects everything."""
    return all(term(labels) for term in _terms(selector))


@lru_cache(maxsize=256)
def _terms(selector: str) -> tuple[_Term, ...]:
    if not selector.strip():
        return ()
    return tuple(_term(part.strip()) for part in _COMMA.split(selector))


def _term(text: str) -> _Term:
    if found := _SET.fullmatch(text):
        key, inside = found["key"], found["how"] == "in"
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _among(key, values, inside=inside)
    if found := _SIZE.fullmatch(text):
        return _sized(found["key"], int(found["value"]), above=found["how"] == ">")
    if found := _SAME.fullmatch(text):
        return _among(found["key"], frozenset({found["value"]}), inside=found["how"] != "!=")
    if text.startswith("!"):
        absent = text[1:].strip()
        return lambda labels: absent not in labels
    return lambda labels: text in labels


def _among(key: str, values: frozenset[str], *, inside: bool) -> _Term:
    """A label that is not there is in no set, and so not in this one."""
    if inside:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _sized(key: str, than: int, *, above: bool) -> _Term:
    def holds(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not value.isdecimal():
            return False
        return int(value) > than if above else int(value) < than

    return holds
