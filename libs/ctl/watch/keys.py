"""What the keys do: bytes of the terminal become names, and names change the screen. Pure."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from libs.ctl.views.frame.compose import page_rows, rooms, shows_map
from libs.ctl.views.frame.heat import map_shape
from libs.ctl.views.frame.panel import last_top
from libs.ctl.watch.screen import Layout, Panel, Screen, Watched, move, scroll

UP, DOWN, LEFT, RIGHT = "up", "down", "left", "right"
PAGE_UP, PAGE_DOWN, HOME, END, ESCAPE = "page-up", "page-down", "home", "end", "escape"
_SEQUENCES: Final = {
    "\x1b[A": UP, "\x1b[B": DOWN, "\x1b[C": RIGHT, "\x1b[D": LEFT,
    "\x1bOA": UP, "\x1bOB": DOWN, "\x1bOC": RIGHT, "\x1bOD": LEFT,
    "\x1b[5~": PAGE_UP, "\x1b[6~": PAGE_DOWN,
    "\x1b[H": HOME, "\x1b[F": END, "\x1b[1~": HOME, "\x1b[4~": END, "\x1bOH": HOME, "\x1bOF": END,
    "\x1b": ESCAPE,
}  # fmt: skip
_KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|\x1b|[^\x1b]", re.DOTALL)
_MOVES: Final = {"k": UP, "j": DOWN, "h": LEFT, " ": PAGE_DOWN, "g": HOME, "G": END}
_HELP: Final = (
    "q      quit; Ctrl-C too",
    "arrows select a node; page up and down, g for the first, G for the last",
    "w      why the selected node is not done, in full (Enter too)",
    "p      pause: start no more nodes; nodes in flight finish",
    "r      resume: end a pause or a freeze, after a question",
    "l      release: accept the failures of a halted driver, after a question",
    "m      nodes as a map, or as rows",
    "",
    (
        "The lines below show the selected node in full. STEP is how many of the steps of an"
        " upgrade a node in flight has reached. A » at the end of the table's head says that a"
        " wider terminal shows more columns, and … that a text is cut."
    ),
)


class Action(StrEnum):
    """What a key asks for beside the screen."""

    QUIT = "quit"
    WHY = "why"
    PAUSE = "pause"
    RESUME = "resume"
    RELEASE = "release"
    CONFIRM = "confirm"
    DENY = "deny"


_ACTIONS: Final = {
    "q": Action.QUIT,
    "w": Action.WHY,
    "\r": Action.WHY,
    "\n": Action.WHY,
    "p": Action.PAUSE,
    "r": Action.RESUME,
    "l": Action.RELEASE,
}


def keys_of(data: bytes) -> Iterator[str]:
    """Yield the names of the keys that sent these bytes; characters name themselves."""
    for found in _KEY.finditer(data.decode(errors="ignore")):
        text = found[0]
        if not text.startswith("\x1b") or text in _SEQUENCES:
            yield _SEQUENCES.get(text, text)


def press(
    key: str, watched: Watched, screen: Screen, *, width: int, height: int
) -> tuple[Screen, Action | None]:
    """Return the screen after a key, and what else the key asks for."""
    room = rooms(len(watched.pools), height).body
    if screen.panel is not None:
        last = last_top(screen.panel, width=width, room=room)
        return _press_in_panel(key, screen, screen.panel, last=last, page=max(1, room - 2))
    screen = msgspec.structs.replace(screen, message="")
    if key in _ACTIONS:
        return screen, _ACTIONS[key]
    if key == "m":
        is_map = shows_map(watched, screen, height=height)
        layout = Layout.ROWS if is_map else Layout.MAP
        return msgspec.structs.replace(screen, layout=layout), None
    if key == "?":
        told = (*watched.guide.help, "") if watched.guide is not None else ()
        help_ = (*told, *_HELP, "", *(_source_lines(watched)))
        panel = Panel(title="Keys and sources", lines=help_)
        return msgspec.structs.replace(screen, panel=panel), None
    steps = _steps(watched, screen, width=width, height=height)
    by = steps.get(_MOVES.get(key, key))
    return (screen if by is None else move(watched.nodes, screen, by)), None


def _press_in_panel(
    key: str, screen: Screen, panel: Panel, *, last: int, page: int
) -> tuple[Screen, Action | None]:
    """Return what a key does while a panel is open: it scrolls, answers, or closes it."""
    scrolls = {UP: -1, DOWN: 1, PAGE_UP: -page, PAGE_DOWN: page}
    by = scrolls.get(_MOVES.get(key, key))
    if by is not None:
        panel = scroll(panel, by, last=last)
        return msgspec.structs.replace(screen, panel=panel), None
    closed = msgspec.structs.replace(screen, panel=None)
    if panel.asks:
        return closed, Action.CONFIRM if key == "y" else Action.DENY
    return (closed if key in (ESCAPE, "q", "w", "?", "\r", "\n") else screen), None


def _steps(watched: Watched, screen: Screen, *, width: int, height: int) -> dict[str, int]:
    """Return by how many nodes each key moves."""
    count = len(watched.nodes)
    room = rooms(len(watched.pools), height).body
    ends = {HOME: -count, END: count}
    if not shows_map(watched, screen, height=height):
        page = page_rows(count, room)
        return ends | {UP: -1, DOWN: 1, PAGE_UP: -page, PAGE_DOWN: page}
    per_cell, lines = map_shape(count, width=width, room=room)
    line = per_cell * width
    half = line * max(1, lines // 2)
    sideways = {LEFT: -1, RIGHT: 1}
    return ends | sideways | {UP: -line, DOWN: line, PAGE_UP: -half, PAGE_DOWN: half}


def _source_lines(watched: Watched) -> Iterator[str]:
    for source in watched.sources:
        said = source.problem or ("not read yet" if source.age is None else "")
        yield f"{source.gives}: from {source.name}{f': {said}' if said else ''}"
