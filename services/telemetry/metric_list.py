"""Which fields a page has: dcgm-exporter's default list, or a list in its CSV format. Pure.

A line is `field, type, help`; `#` begins a comment. A line that cannot be used is left out, with
the reason: the others count.
"""

import csv
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from services.telemetry.field import Field, NumberField, TextField
from services.telemetry.fields import DEFAULT_FIELDS, DRIVER_VERSION, FIELDS, TEXTS, UNAVAILABLE

LABEL: Final = "label"
_TYPES: Final = ("gauge", "counter", "histogram", "summary", LABEL)
_MAX_SHOWN: Final = 80
_LIST_OF_FIELDS: Final = "docs/metrics.md lists the fields that exist"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A field that has samples, with the type and help of the list."""

    field: NumberField
    type: str
    help: str


class MetricList(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows: its metrics, and what it adds to each of their samples."""

    metrics: tuple[Metric, ...]
    labels: tuple[Field, ...]
    """Fields that are a label of every sample, by name."""


class LineProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is left out. The reason says what to do."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class ParsedList(msgspec.Struct, frozen=True, kw_only=True):
    """A list as far as it can be used, and what cannot."""

    metrics: MetricList
    problems: tuple[LineProblem, ...] = ()


def as_described(fields: Iterable[Field]) -> tuple[Metric, ...]:
    """Return the fields that have samples, with their own types and helps."""
    numbers = (field for field in fields if isinstance(field, NumberField))
    return tuple(Metric(field=field, type=field.type, help=field.help) for field in numbers)


DEFAULT_LIST: Final = MetricList(
    metrics=as_described(DEFAULT_FIELDS),
    labels=tuple(text for text in TEXTS if text.name == DRIVER_VERSION),
)


def parse_list(text: str) -> ParsedList:
    """Read a list; a line that cannot be used is a problem of its own, and costs no other."""
    metrics: list[Metric] = []
    labels: list[Field] = []
    problems: list[LineProblem] = []
    lines: dict[str, int] = {}
    for number, cells in _rows(text):
        found = _entry(cells, lines)
        if isinstance(found, str):
            problems.append(LineProblem(line=number, reason=found))
            continue
        if isinstance(found, Metric):
            metrics.append(found)
        else:
            labels.append(found)
        lines[cells[0]] = number
    labels.sort(key=lambda field: field.name)
    return ParsedList(
        metrics=MetricList(metrics=tuple(metrics), labels=tuple(labels)), problems=tuple(problems)
    )


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            (cells,) = csv.reader([line], skipinitialspace=True)
            yield number, [cell.strip() for cell in cells]


def _entry(cells: list[str], lines: dict[str, int]) -> Metric | Field | str:
    """Return what a line adds, or why it adds nothing."""
    if len(cells) != 3:
        return (
            f"it has {len(cells)} parts instead of field, type and help: separate three parts by"
            " commas, and quote a help text that has commas itself"
        )
    name, type_, help_ = cells
    if (problem := _problem(name, type_, lines)) is not None:
        return problem
    field = FIELDS[name]
    if type_ == LABEL:
        return field
    if isinstance(field, TextField):
        return f"the type of {name} is {_shown(type_)}, but its value is a text: write {LABEL}"
    return Metric(field=field, type=type_, help=help_)


def _problem(name: str, type_: str, lines: dict[str, int]) -> str | None:
    """Return why a line adds nothing, and what to do about it."""
    if (reason := UNAVAILABLE.get(name)) is not None:
        return f"{name} cannot be measured: {reason}; remove the line"
    if name not in FIELDS:
        return f"the field {_shown(name)} is not known: correct its name; {_LIST_OF_FIELDS}"
    if name in lines:
        return f"{name} is in line {lines[name]}, too: remove one of the lines"
    if type_ not in _TYPES:
        return f"the type of {name} is {_shown(type_)}: write one of {', '.join(_TYPES)}"
    return None


def _shown(text: str) -> str:
    """Quote what a line says, shortened: a file may have anything in a line."""
    return repr(text[:_MAX_SHOWN])
