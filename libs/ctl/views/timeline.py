"""What a picture of a rollout shows, whatever draws it: rows of spans, a scale, a curve. Pure.

Times are seconds from the beginning of the picture.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Final, TypeVar

import msgspec

from libs.contracts.queries import PlanAnswer, PlannedNode
from libs.ctl.text import duration
from libs.rollout.plan_time import brief, stop_words

_T = TypeVar("_T")

FILE_ROWS: Final = 120
"""Rows of bars in a file; the table of a page has each node."""
_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0
_STEPS: Final = (
    *(10.0, 30.0),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12, 24, 48, 96, 168)),
)
"""Seconds between two marks on the scale that people can add up."""
_NEVER: Final = float("inf")


class Span(msgspec.Struct, frozen=True):
    """A time in which a node is upgraded: its likely start and end, and the latest end."""

    start: float
    end: float
    late: float
    is_open: bool = False
    """The end is not known; `end` is where the known part ends."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A node, or several that follow one another, where there are too many for a row each."""

    name: str
    nodes: int = 1
    plan: Span | None = None
    happened: Span | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(span for span in (self.plan, self.happened) if span is not None)


class Step(msgspec.Struct, frozen=True):
    """From a time on, this much is available."""

    at: float
    available: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of a rollout."""

    rows: tuple[Row, ...]
    seconds: float
    """The time that its full width stands for."""
    total: int = 0
    """The pool's GPUs, or its nodes where their GPUs are not known; 0: no curve."""
    unit: str = "GPUs"
    curve: tuple[Step, ...] = ()
    is_one_run: bool = False
    """The bars are of the simulated run that the curve is of, and not the median of each node."""
    origin: str = "now"
    """What the beginning of the picture is."""

    def marks(self, most: int) -> tuple[float, ...]:
        """Return times to mark on the scale, from 0 on, at equal distances."""
        fitting = (step for step in _STEPS if self.seconds / step <= max(1, most))
        step = next(fitting, self.seconds)
        return tuple(step * number for number in range(int(self.seconds / step) + 1))

    @property
    def is_comparison(self) -> bool:
        """Whether what happened is shown beside the plan."""
        return any(row.happened is not None for row in self.rows)

    def mark_name(self, seconds: float) -> str:
        return duration(seconds) if seconds else self.origin

    def available_within(self, start: float, end: float) -> int:
        """Return the least that is available at any moment of a time."""
        before = [step.available for step in self.curve if step.at <= start]
        within = [step.available for step in self.curve if start < step.at < end]
        return min([before[-1] if before else self.total, *within])

    def least(self, cells: int) -> list[int]:
        """Return the least that is available in each of so many equal times.

        A rise between two nodes that lasts one of them is left out: it would be a needle, and
        nothing can be done in that time.
        """
        each = self.seconds / cells
        found = [self.available_within(cell * each, (cell + 1) * each) for cell in range(cells)]
        inner = zip(found, found[1:], found[2:], strict=False)
        return [*found[:1], *(min(b, max(a, c)) for a, b, c in inner), *found[1:][-1:]]


class RolloutPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a file tells of a rollout: a page all of it, a picture the title, facts and bars.

    Facts are names with their texts.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    more_facts: tuple[tuple[str, str], ...] = ()
    timeline: Timeline
    in_the_way: tuple[tuple[str, str], ...] = ()
    heads: tuple[str, ...]
    """Of the table of nodes."""
    nodes: tuple[tuple[str, ...], ...]
    times: int
    """How many columns after the first are times."""
    remarks: tuple[str, ...] = ()
    footer: str


def shared_rows(items: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    """Yield the items of each row: several that follow one another where there would be more rows
    than `most`; 0: each has its own.
    """
    share = max(1, ceil(len(items) / most)) if most else 1
    for first in range(0, len(items), share):
        yield items[first : first + share]


def row_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def ordered(nodes: Iterable[PlannedNode]) -> list[PlannedNode]:
    """Return the nodes as they start; those that do not are last."""
    return sorted(nodes, key=lambda node: (_known(node.start_p50), node.node))


def plan_timeline(plan: PlanAnswer, *, most_rows: int) -> Timeline:
    """Return the picture of a forecast, in which nodes share rows if there are too many."""
    moving = (node for node in ordered(plan.nodes) if node.start_p50 is not None)
    spans = sorted(((node.node, _span(node)) for node in moving), key=lambda each: each[1].start)
    is_one_run = any(node.run_start is not None for node in plan.nodes)
    ends = (span.late for _, span in spans)
    seconds = max([plan.makespan_p95 or plan.makespan_p50 or 0.0, *ends, 1.0])
    total, unit = (plan.pool_gpus, "GPUs") if plan.pool_gpus else (plan.pool_nodes, "nodes")
    return Timeline(
        rows=tuple(_rows(spans, most_rows)),
        seconds=seconds,
        total=total if plan.capacity else 0,
        unit=unit,
        is_one_run=is_one_run,
        origin=_origin(plan),
        curve=tuple(
            Step(point.at, max(0, total - (point.gpus if plan.pool_gpus else point.nodes)))
            for point in plan.capacity
        ),
    )


def _origin(plan: PlanAnswer) -> str:
    """Return the moment from which times count: now, or when the pool is not stopped any more."""
    ends = {stop_words(stop)[1].removeprefix("a ") for stop in plan.stops}
    return ends.pop() if len(ends) == 1 else "then" if ends else "now"


def _known(seconds: float | None) -> float:
    return _NEVER if seconds is None else seconds


def _span(node: PlannedNode) -> Span:
    """Return a node's time in the run of the curve; where it is not told, its own median."""
    is_told = node.run_start is not None and node.run_end is not None and node.end_p50 is not None
    start = (node.run_start if is_told else node.start_p50) or 0.0
    end = node.run_end if is_told else node.end_p50
    if end is None:
        return Span(start, start, max(start, node.start_p95 or start), is_open=True)
    return Span(start, end, max(end, node.end_p95 or end))


def _rows(spans: Sequence[tuple[str, Span]], most: int) -> Iterator[Row]:
    for some in shared_rows(spans, most):
        name = row_name([node for node, _ in some])
        yield Row(name=name, nodes=len(some), plan=_joined([span for _, span in some]))


def _joined(spans: Sequence[Span]) -> Span:
    return Span(
        min(span.start for span in spans),
        max(span.end for span in spans),
        max(span.late for span in spans),
        is_open=any(span.is_open for span in spans),
    )


def times(span: Span) -> str:
    """Return the start and the end of a time."""
    return f"{brief(span.start)} to {'?' if span.is_open else brief(span.end)}"
