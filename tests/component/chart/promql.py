"""The metrics and labels that a query names, as far as our queries are written."""

import re
from typing import Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHERS: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_MATCHED: Final = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)")
_LABELS: Final = re.compile(r"\b(?:by|on|group_left|without|ignoring)\s*\(([^)]*)\)")
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_NAME: Final = re.compile(r"(?<![\w$])([a-zA-Z_:][a-zA-Z0-9_:]*)(?!\w)(?!\s*\()")
_WORDS: Final = frozenset(("and", "or", "unless", "on", "by", "bool", "offset"))


def metrics_of(query: str) -> dict[str, frozenset[str]]:
    """Return the labels that the query matches, by the names of its metrics."""
    text = _STRING.sub('""', query)
    matched = {
        name: frozenset(_MATCHED.findall(inside)) for name, inside in _MATCHERS.findall(text)
    }
    rest = _RANGE.sub("", _LABELS.sub("", _MATCHERS.sub(r"\1", text)))
    names = {name for name in _NAME.findall(rest) if name not in _WORDS}
    return {name: matched.get(name, frozenset()) for name in sorted(names)}


def grouped_by(query: str) -> frozenset[str]:
    """Return the labels by which the query groups or joins."""
    lists = _LABELS.findall(_STRING.sub('""', query))
    return frozenset(label.strip() for each in lists for label in each.split(",") if label.strip())
