"""What a person sees of an answer, and while it takes its time."""

import asyncio
import io
import json

import pytest
import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from libs.ctl.output import Format, print_view, show, shown
from libs.ctl.views.events import event_line
from libs.ctl.views.layout import Column, fact, listing
from libs.fleet.status import EventLine
from libs.testing.simulation import Sim, run


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def seen(seconds: float, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool = True) -> str:
    """Return what is written while an answer takes these seconds."""
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", screen)

    async def main(_: Sim) -> str:
        return await shown("a plan", asyncio.sleep(seconds, "answer"))

    assert run(main, seed=1) == "answer"
    return screen.getvalue()


def printed(view: RenderableType, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is written of a view into a file."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    monkeypatch.delenv("COLUMNS", raising=False)
    print_view(view)
    return written.getvalue()


def test_no_line_ends_with_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("node-1", "ok"), ("node-10", "a long sentence")]
    columns = (
        Column[tuple[str, str]]("NODE", lambda row: row[0]),
        Column[tuple[str, str]]("WHY", lambda row: row[1], folds=True),
    )
    table = listing(columns, rows, width=200)
    event = EventLine(at=0.0, writer="scheduler", node="n", kind="step", message="x " * 150)
    view = Group(table, Text(""), event_line(event), fact("note", "y " * 150))
    lines = printed(view, monkeypatch).split("\n")
    assert lines[:4] == ["NODE     WHY", "node-1   ok", "node-10  a long sentence", ""]
    assert len(lines) == 9
    assert [line for line in lines if line != line.rstrip()] == []


_HOSTILE = "\x9b2J \x85 \u202egnp.exe\u2066 \u2028 \x7f \U000e0041 \x1b[31m é 🚀\nnext"


@pytest.mark.parametrize("format", [Format.JSON, Format.YAML])
def test_programs_read_what_a_node_wrote_and_a_terminal_shows_no_control_character(
    format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    answer = {_HOSTILE: [_HOSTILE, "plain", "é", _HOSTILE * 20, True, None, 1.5]}
    show(answer, lambda _width, _wide: "", format=format)
    text = written.getvalue()
    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    assert "é" in text
    read = yaml.safe_load(text) if format is Format.YAML else json.loads(text)
    assert read == answer


def test_seconds_are_counted_and_removed_once_the_answer_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blank = " " * len("a plan: 2 s")
    assert seen(2.5, monkeypatch) == f"\ra plan: 1 s\ra plan: 2 s\r{blank}\r"


def test_a_quick_answer_and_a_file_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(0.5, monkeypatch) == ""
    assert seen(2.5, monkeypatch, is_terminal=False) == ""
