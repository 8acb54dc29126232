"""What a person sees while an answer takes its time."""

import asyncio
import io

import pytest

from libs.ctl.output import shown
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


def test_seconds_are_counted_and_removed_once_the_answer_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blank = " " * len("a plan: 2 s")
    assert seen(2.5, monkeypatch) == f"\ra plan: 1 s\ra plan: 2 s\r{blank}\r"


def test_a_quick_answer_and_a_file_get_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(0.5, monkeypatch) == ""
    assert seen(2.5, monkeypatch, is_terminal=False) == ""
