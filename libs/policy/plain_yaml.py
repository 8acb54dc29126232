"""Read YAML that others wrote, at a price that the length of the text bounds. Pure.

A library for YAML reads more than data: aliases that make gigabytes of a few lines, types of
objects, numbers to the base of 60, and nesting that ends the process of a C library. Here a text
becomes what JSON could hold, event by event and without recursion, or is refused. The limits of a
ConfigMap's text keep an event loop for a twentieth of a second.
"""

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

MAX_LENGTH: Final = 1 << 20
"""Characters, or bytes: the most that a ConfigMap holds."""
MAX_VALUES: Final = 20_000
"""Each costs memory, and microseconds of the processor."""
MAX_DEPTH: Final = 100
"""Lists and mappings within each other: what walks through them may do so by recursion."""

_TAG: Final = "tag:yaml.org,2002:"
_DIRECTIVE: Final = re.compile(r"^%TAG\b", re.MULTILINE)
"""Searched for beforehand: each is compared with all others of its document."""
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
    **{
        f"{sign}.{each}": float(f"{sign}inf")
        for sign in ("", "-")
        for each in ("inf", "Inf", "INF")
    },
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
"""What YAML 1.2 says, and the words for true and false of 1.1, which the reader of NVIDIA's
programs and of kubectl takes too."""
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0x([0-9a-f]+)|0o?([0-7]+)|0b([01]+)|(0|[1-9][0-9]*))", re.IGNORECASE
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_LONGEST_NUMBER: Final = 400
"""Characters of a number; one with more is text."""


class RefusedYaml(Exception):
    """A text is no YAML, or more than data; the text says why, for people."""

    def __init__(self, problem: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        """From 1; 0 where the problem has no place."""
        self.column = column


def load_yaml(text: str | bytes) -> object:
    """Return the only document of a text as plain data, None if there is none.

    Raise `RefusedYaml`.
    """
    documents = load_documents(text)
    if len(documents) > 1:
        raise RefusedYaml("it has several documents, of which one is wanted: write one")
    return documents[0] if documents else None


def load_documents(
    text: str | bytes, *, max_length: int = MAX_LENGTH, max_values: int = MAX_VALUES
) -> list[object]:
    """Return each document of a text as plain data, or raise `RefusedYaml`."""
    if len(text) > max_length:
        kind = "characters" if isinstance(text, str) else "bytes"
        raise RefusedYaml(f"it has more than {max_length} {kind}: shorten it")
    # Agents import the neighbours of this module, and have no YAML.
    yaml: Any = import_module("yaml")
    reader = _Reader(yaml, max_values)
    try:
        for event in _events(yaml, text):
            reader.take(event)
    except yaml.YAMLError as error:
        why = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise _refusal(
            f"it is no YAML: {why or error}", getattr(error, "problem_mark", None)
        ) from None
    except UnicodeError:
        raise RefusedYaml("it is no YAML: it is no valid Unicode") from None
    return reader.documents


def _events(yaml: Any, text: str | bytes) -> Iterator[Any]:
    head = text if isinstance(text, str) else text.decode("latin-1")
    if _DIRECTIVE.search(head):
        raise RefusedYaml("it uses a directive %TAG: write it without")
    return yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class _Open(NamedTuple):
    """A list or mapping whose end has not come yet."""

    content: list[object] | dict[object, object]
    key: list[object]
    """Of a mapping: the key whose value comes next, if one does."""


class _Reader:
    def __init__(self, yaml: Any, max_values: int) -> None:
        self.documents: list[object] = []
        self._yaml = yaml
        self._max_values = max_values
        self._left = max_values
        self._open: list[_Open] = []

    def take(self, event: Any) -> None:
        yaml = self._yaml
        if isinstance(event, yaml.ScalarEvent):
            self._add(_scalar(event), event)
        elif isinstance(event, yaml.CollectionStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            if event.tag not in (None, "!", f"{_TAG}{'map' if is_mapping else 'seq'}"):
                raise _refusal("it names a type of values: write it without", event.start_mark)
            content: list[object] | dict[object, object] = {} if is_mapping else []
            self._add(content, event)
            self._open.append(_Open(content, []))
            if len(self._open) > MAX_DEPTH:
                raise _refusal(
                    f"it has more than {MAX_DEPTH} lists and mappings within each other: write it"
                    " flatter",
                    event.start_mark,
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise _refusal("it uses an alias: write the value out", event.start_mark)

    def _add(self, value: object, event: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise _refusal(
                f"it has more than {self._max_values} values: shorten it", event.start_mark
            )
        if not self._open:
            self.documents.append(value)
            return
        content, key = self._open[-1]
        if isinstance(content, list):
            content.append(value)
        elif key:
            content[key.pop()] = value
        else:
            key.append(_checked_key(value, content, event))


def _checked_key(key: object, known: dict[object, object], event: Any) -> object:
    if isinstance(key, list | dict):
        raise _refusal("it has a list or mapping for a key: write a name", event.start_mark)
    if key == "<<" and event.implicit[0]:
        raise _refusal("it merges mappings by <<: write the fields out", event.start_mark)
    if key in known:
        named = f"{str(key)[:60]!r}"
        raise _refusal(f"its key {named} occurs twice in one mapping: remove one", event.start_mark)
    return key


def _scalar(event: Any) -> object:
    text: str = event.value
    if event.tag is None:
        return _plain(text) if event.implicit[0] else text
    if event.tag in ("!", f"{_TAG}str"):
        return text
    kind = _TYPES.get(event.tag)
    value = _plain(text)
    if kind is None or not kind(value):
        raise _refusal("it names a type of value that is not that of the value", event.start_mark)
    return value


_TYPES: Final[dict[str, Callable[[object], bool]]] = {
    f"{_TAG}null": lambda value: value is None,
    f"{_TAG}bool": lambda value: isinstance(value, bool),
    f"{_TAG}int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    f"{_TAG}float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _plain(text: str) -> object:
    """Return the value of a text that is not quoted."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > _LONGEST_NUMBER:
        return text
    number = text.replace("_", "")
    if (found := _INTEGER.fullmatch(number)) is not None:
        sign, *digits = found.groups()
        value = next(
            int(f"{sign}{part}", base)
            for part, base in zip(digits, (16, 8, 2, 10), strict=True)
            if part
        )
        if -(1 << 63) <= value < 1 << 64:
            return value
    if _FLOAT.fullmatch(number) is not None and abs(value := float(number)) != float("inf"):
        return value
    return text


def _refusal(problem: str, mark: Any) -> RefusedYaml:
    if mark is None:
        return RefusedYaml(problem)
    return RefusedYaml(problem, line=mark.line + 1, column=mark.column + 1)
