r"""The paths by which a custom kind's columns find their values: `.status.conditions[0].reason`.

Fields (`.a`, `['a']`; in both a dot in a name is escaped as `\.`), elements (`[0]`, `[-1]`,
`[*]`, `.*`) and filters (`[?(@.type=="Ready")]`, `[?(@.x)]`). Anything else is refused when
the path is read.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

Step = Callable[[Any], Iterator[Any]]

_STEP = re.compile(
    r"""
    \.(?P<field>(?:\\.|[^.\[\]\\])+)
    | \['(?P<quoted>[^']*)'\]
    | \[(?P<index>-?\d+)\]
    | \[(?P<all>\*)\]
    | \[\?\((?P<filter>.*?)\)\]
    """,
    re.VERBOSE,
)
_FILTER = re.compile(
    r"""\s*@(?P<path>.*?)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<value>\S.*?)\s*)?"""
)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class InvalidPath(ValueError):
    """What this server cannot read as a path; the text says where it stops."""


class Path:
    """A path that was read once and is followed often."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = _steps(text)

    def follow(self, thing: Any) -> list[Any]:
        """All that it leads to: nothing, where it leads nowhere."""
        found = [thing]
        for step in self._steps:
            found = [each for here in found for each in step(here)]
        return found


def _steps(text: str) -> list[Step]:
    bare = text.strip().removeprefix("$")
    if bare in ("", "."):
        return []
    steps: list[Step] = []
    position = 0
    while position < len(bare):
        matched = _STEP.match(bare, position)
        if matched is None:
            raise InvalidPath(
                f"path {text!r}: cannot read {bare[position:]!r}; fields, elements, [*] and "
                "filters with one comparison are understood"
            )
        steps += _read(matched)
        position = matched.end()
    return steps


def _read(matched: re.Match[str]) -> list[Step]:
    groups = matched.groupdict()
    if groups["quoted"] is not None:
        return _steps(f".{groups['quoted']}")
    if groups["index"] is not None:
        return [_element(int(groups["index"]))]
    if groups["filter"] is not None:
        return [_filter(groups["filter"])]
    if groups["all"] or groups["field"] == "*":
        return [_every]
    return [_field(groups["field"].replace("\\", ""))]


def _field(name: str) -> Step:
    def step(thing: Any) -> Iterator[Any]:
        if isinstance(thing, Mapping) and name in thing:
            yield thing[name]

    return step


def _element(index: int) -> Step:
    def step(thing: Any) -> Iterator[Any]:
        if isinstance(thing, list):
            elements = cast(list[Any], thing)
            if -len(elements) <= index < len(elements):
                yield elements[index]

    return step


def _every(thing: Any) -> Iterator[Any]:
    if isinstance(thing, Mapping):
        yield from cast(Mapping[str, Any], thing).values()
    elif isinstance(thing, list):
        yield from cast(Sequence[Any], thing)


def _filter(text: str) -> Step:
    matched = _FILTER.fullmatch(text)
    if matched is None:
        raise InvalidPath(f"filter {text!r}: it must begin with @ and compare with one literal")
    path = Path(matched["path"])
    compare = _COMPARE[matched["operator"]] if matched["operator"] else None
    literal = _literal(matched["value"]) if compare else None

    def passes(element: Any) -> bool:
        values = path.follow(element)
        if compare is None or not values:
            return bool(values)
        # Only like is compared with like, as on the real server.
        return type(values[0]) is type(literal) and compare(values[0], literal)

    def step(thing: Any) -> Iterator[Any]:
        if isinstance(thing, list):
            yield from (element for element in cast(list[Any], thing) if passes(element))

    return step


def _literal(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidPath(f"filter: {text!r} is neither a string, a number nor a bool") from error
