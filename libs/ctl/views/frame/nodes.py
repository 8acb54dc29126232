"""Nodes as rows, and the one that is selected in full. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.contracts.queries import WaitReason
from libs.contracts.rollout import BY_BRAKE, BY_CHECKED_BRAKE, BY_RELEASE
from libs.contracts.waits import AWAITED, WaitCode
from libs.ctl.text import duration
from libs.ctl.views.frame.text import Line, Span, bar, cut_middle, fit, pad
from libs.ctl.views.status import cordon_text, node_note
from libs.fleet.node import Doing, FollowedNode, driver_text

MORE_COLUMNS: Final = "»"
"""Ends a table's head whose other columns need a wider terminal."""
DETAIL_LINES: Final = 3
NARROW: Final = 60
"""Columns below which less is shown."""
_WIDE: Final = 100
"""Columns from which a duration has both its units."""
STYLES: Final[Mapping[Doing, str]] = {
    Doing.DONE: "green",
    Doing.WAITING: "",
    Doing.IN_FLIGHT: "bold cyan",
    Doing.FAILED: "bold red",
    Doing.SKIPPED: "dim",
    Doing.CORDONED: "yellow",
    Doing.UNMANAGED: "dim",
}
_GAP: Final = 2
_MARK: Final = 2
"""Cells for the mark of the selected row."""
_STEPS: Final = (
    UpgradeState.CORDON_REQUIRED,
    UpgradeState.WAIT_FOR_JOBS_REQUIRED,
    UpgradeState.POD_DELETION_REQUIRED,
    UpgradeState.DRAIN_REQUIRED,
    UpgradeState.POD_RESTART_REQUIRED,
    UpgradeState.VALIDATION_REQUIRED,
    UpgradeState.UNCORDON_REQUIRED,
)
"""In their order. How much of its time a state has taken says nothing: limits are hours."""
_BAR: Final = len(_STEPS) + 1
_FEWEST_WORDS: Final = 18
"""Cells that the reason of a wait, and who can end it, have at least."""
_MORE_WORDS: Final = 8
"""Cells that are left to both before another column is shown."""
_MOST_PEOPLE: Final = 34
"""Cells in which all that `short_who` returns can be read."""


class Column(msgspec.Struct, frozen=True):
    """A column of the table of nodes."""

    title: str
    width: int
    right: bool = False


_BRAKED: Final = re.compile(r"Rollout \S+ is (\w+(?: by .+?)?) \(spec\.brake: \w+\)(?:: (.*))?")
"""How the scheduler says that the brake holds a pool."""
_BY_KEY: Final = {BY_BRAKE: "by key r", BY_CHECKED_BRAKE: "by key r", BY_RELEASE: "by key l"}
"""How the scheduler says it that a brake or a halt is ended, and how it is in this view."""
_HOW: Final = re.compile("[;,]| that ")
_ARTICLE: Final = re.compile("^(an?|the) ")

_GPU_COLUMNS: Final = (Column("GPUS", 5, right=True), Column("°C", 3, right=True))
"""Shown where telemetry is read."""


def columns(nodes: Sequence[FollowedNode], width: int, *, is_measured: bool) -> tuple[Column, ...]:
    """Return the columns that fit. Widths depend on the terminal and the names alone: a state that
    changes moves nothing.
    """
    longest = max((len(node.name) for node in nodes), default=4)
    name = Column("NODE", min(max(4, longest), max(8, width // 3 - 2)))
    state, since = 13 if width < NARROW else 16, 6 if width < _WIDE else 10
    fixed = [name, Column("STATE", state), Column("SINCE", since, right=True)]
    left = (
        width
        - _MARK
        - len(MORE_COLUMNS)
        - sum(column.width for column in fixed)
        - _GAP * (len(fixed) - 1)
    )
    sentences: list[Column] = []
    for title in ("WAITS FOR", "ENDED BY"):
        if left >= _FEWEST_WORDS + _GAP:
            sentences.append(Column(title, _FEWEST_WORDS))
            left -= _FEWEST_WORDS + _GAP
    others: list[Column] = []
    for column in _others(is_measured=is_measured):
        if column.width + _GAP + (_MORE_WORDS if sentences else 0) <= left:
            others.append(column)
            left -= column.width + _GAP
    return (*fixed, *others, *_wider(sentences, left))


def _others(*, is_measured: bool) -> tuple[Column, ...]:
    """Return the columns that are shown where sentences have room."""
    return (Column("DRIVER", 11), Column("STEP", _BAR), *(_GPU_COLUMNS if is_measured else ()))


def _wider(sentences: Sequence[Column], left: int) -> Iterator[Column]:
    """Give the cells that are left to the columns of sentences."""
    who = min(left // 2, _MOST_PEOPLE - _FEWEST_WORDS) if len(sentences) > 1 else 0
    extra = {"WAITS FOR": left - who, "ENDED BY": who}
    for column in sentences:
        yield msgspec.structs.replace(column, width=column.width + extra[column.title])


def head_line(columns: Sequence[Column], width: int, *, is_measured: bool) -> Line:
    """Return the titles, with a sign where columns are left out."""
    titles = (" " * _GAP).join(pad(each.title, each.width, right=each.right) for each in columns)
    text = f"{' ' * _MARK}{titles}"
    wanted = {"ENDED BY", *(column.title for column in _others(is_measured=is_measured))}
    if wanted <= {column.title for column in columns}:
        return fit([Span(text.rstrip(), "bold")], width)
    return fit([Span(pad(text, width - 1), "bold"), Span(MORE_COLUMNS, "bold")], width)


def node_line(
    node: FollowedNode, columns: Sequence[Column], *, now: float, width: int, selected: bool
) -> Line:
    """Return a node's row; the selected one is marked and reversed."""
    room = next(column.width for column in columns if column.title == "SINCE")
    since = "" if node.since is None else age(now - node.since, room)
    cells = _cells(node, since)
    reverse = "reverse" if selected else ""
    spans = [Span("> " if selected else "  ", reverse)]
    for index, column in enumerate(columns):
        text, style = cells[column.title]
        gap = "" if index == len(columns) - 1 else " " * _GAP
        shown = cut_middle(text, column.width) if column.title == "NODE" else text
        styled = " ".join(filter(None, (style, reverse)))
        spans.append(Span(pad(shown, column.width, right=column.right) + gap, styled))
    return fit(spans, width)


def _cells(node: FollowedNode, since: str) -> dict[str, tuple[str, str]]:
    use = node.use
    hot = "" if use is None or use.hottest is None else f"{use.hottest:.0f}"
    return {
        "NODE": (node.name, ""),
        "STATE": (state_name(node.state), STYLES[node.doing]),
        "SINCE": (since, ""),
        "DRIVER": (driver_text(node).partition(" ")[0], ""),
        "STEP": (step_bar(node), "cyan"),
        "GPUS": ("" if use is None else f"{use.busy}/{use.total}", ""),
        "°C": (hot, ""),
        "WAITS FOR": (_reason(node), ""),
        "ENDED BY": ("" if node.wait is None else short_who(node.wait.who), ""),
    }


def short_who(who: str) -> str:
    """Return who can end a wait, without how: the selected node shows that in full."""
    return _ARTICLE.sub("", _HOW.split(who, maxsplit=1)[0])


def age(seconds: float, room: int) -> str:
    """Return a duration of so many cells: the larger unit alone where there is no room for two."""
    text = duration(seconds)
    return text if len(text) <= room else " ".join(text.split()[:2])


def state_name(state: str) -> str:
    """Return the label's value, shorter where that leaves no doubt."""
    if state == UpgradeState.UPGRADE_REQUIRED:
        return state
    return state.removesuffix("-required").removeprefix("upgrade-") or "none"


def step_bar(node: FollowedNode) -> str:
    """Return which of the steps of an upgrade a node in flight is at: one more cell for each."""
    if node.doing is not Doing.IN_FLIGHT or node.state not in _STEPS:
        return ""
    full = _STEPS.index(UpgradeState(node.state)) + 1
    return bar(full / _BAR, _BAR)


def _reason(node: FollowedNode) -> str:
    """Return what the node waits for, otherwise what is done on it or special about it."""
    if node.wait is not None:
        return ": ".join(_told(node.wait))
    if node.doing is Doing.IN_FLIGHT and node.command is not None:
        return node.command.text
    return _note(node)


def _note(node: FollowedNode) -> str:
    """Return what is special about a node, with the cordon of others where nothing else says it."""
    is_told = node.doing is Doing.FAILED or (
        node.wait is not None and node.wait.code == WaitCode.SKIPPED
    )
    cordoned = "" if is_told else cordon_text(node)
    return "; ".join(filter(None, (cordoned, node_note(node))))


def _told(wait: WaitReason) -> tuple[str, ...]:
    """Return what a node waits for, or how it is, and why; of a brake, who set it instead."""
    if braked := _BRAKED.fullmatch(wait.detail):
        return tuple(filter(None, braked.groups()))
    return wait.code, wait.detail


def _by_key(who: str) -> str:
    """Return who can end a wait, with the key for it in place of the field that it writes."""
    for field, key in _BY_KEY.items():
        who = who.replace(field, key)
    return who


def detail_lines(node: FollowedNode | None, *, now: float, width: int) -> list[Line]:
    """Return the selected node, also what its row has no room for."""
    if node is None:
        return [()] * DETAIL_LINES
    wait, command = node.wait, node.command
    since = "" if node.since is None else f" for {duration(now - node.since)}"
    limit = ""
    if node.doing is Doing.IN_FLIGHT and node.deadline is not None:
        limit = f", at most {duration(node.deadline - now)} more"
    driver = driver_text(node)
    facts = [f"driver {driver}" if driver else "", _note(node)]
    if node.use is not None:
        hot = "" if node.use.hottest is None else f", {node.use.hottest:.0f} °C at most"
        facts.append(f"{node.use.busy} of {node.use.total} GPUs busy{hot}")
    if node.pool:
        facts.append(f"pool {node.pool}")
    head = f"  {node.state or 'no upgrade state'}{since}{limit}"
    first = [Span(node.name, "bold"), Span("; ".join(filter(None, (head, *facts))))]
    if wait is None:
        second, third = "", ""
        if command is not None:
            ago = duration(now - command.at)
            second = f"{ago} ago the {command.agent} agent was told to {command.text}"
    else:
        until = "" if wait.until is None else f", at most {duration(wait.until - now)} more"
        state, *why = _told(wait)
        waits = "waits for " if wait.code in AWAITED else ""
        lasts = f"{waits}{state} for {duration(now - wait.since)}{until}"
        second = ": ".join((lasts, *why))
        third = f"ended by: {_by_key(wait.who) or 'time alone'}"
    texts = ([Span(f"  {each}" if each else "")] for each in (second, third))
    return [fit(first, width), *(fit(each, width) for each in texts)]
