"""Label selectors in text form: `app=train,tier in (a, b)`.

Syntax is checked as the API server would, so that a typo is found before any node is cordoned.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

_SPACE: Final = re.compile(r"[ \t\r\n]+")
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = rf"(?:{_PART}(?:\.{_PART})*/)?{_NAME}"
_VALUES: Final = rf"\( ?(?:{_NAME})?(?: ?, ?(?:{_NAME})?)* ?\)"
_CONDITION: Final = rf" ?(?:=|==|!=) ?(?:{_NAME})?| (?:in|notin) ?{_VALUES}| ?[<>] ?[0-9]{{1,18}}"
_REQUIREMENT: Final = rf" ?(?:! ?{_KEY}|{_KEY}(?:{_CONDITION})?) ?"
_SELECTOR: Final = re.compile(rf" ?|{_REQUIREMENT}(?:,{_REQUIREMENT})*", re.ASCII)


def is_valid_selector(text: str) -> bool:
    """Report whether the API server would accept the selector; an empty one selects everything."""
    return _SELECTOR.fullmatch(_SPACE.sub(" ", text)) is not None


Labels = Mapping[str, str]
_Term = Callable[[Labels], bool]

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUALITY: Final = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>\S*)")
_COMPARISON: Final = re.compile(r"(?P<key>[^\s<>]+)\s*(?P<operator>[<>])\s*(?P<value>[0-9]{1,18})")
_COMMA: Final = re.compile(r",(?![^(]*\))")


def selects(selector: str, labels: Labels) -> bool:
    """Report whether labels match a selector; an empty selector matches everything."""
    return all(term(labels) for term in _terms(selector))


@lru_cache(maxsize=256)
def _terms(selector: str) -> tuple[_Term, ...]:
    if not selector.strip():
        return ()
    return tuple(_term(part.strip()) for part in _COMMA.split(selector))


def _term(text: str) -> _Term:
    if found := _SET.fullmatch(text):
        key, inside = found["key"], found["operator"] == "in"
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _set_term(key, values, inside=inside)
    if found := _COMPARISON.fullmatch(text):
        return _comparison_term(found["key"], int(found["value"]), above=found["operator"] == ">")
    if found := _EQUALITY.fullmatch(text):
        return _set_term(
            found["key"], frozenset({found["value"]}), inside=found["operator"] != "!="
        )
    if text.startswith("!"):
        absent = text[1:].strip()
        return lambda labels: absent not in labels
    return lambda labels: text in labels


def _set_term(key: str, values: frozenset[str], *, inside: bool) -> _Term:
    """Match a label against a set of values; an absent label is in no set."""
    if inside:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _comparison_term(key: str, than: int, *, above: bool) -> _Term:
    def holds(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not value.isdecimal():
            return False
        return int(value) > than if above else int(value) < than

    return holds
