"""What a viewer of the demo sees between its lines."""

import asyncio
import io
from collections.abc import Callable
from itertools import pairwise

import pytest

from demo.screen import SILENT_SECONDS, DemoScreen, wants_view
from libs.testing.simulation import Sim, run

AT_MOST = 3.0
"""Silent seconds."""


class TimedOutput(io.StringIO):
    """Records when something was written."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self.times: list[float] = []

    def write(self, text: str) -> int:
        self.times.append(self._now())
        return super().write(text)


async def set_up(screen: DemoScreen) -> None:
    """Be busy for as long as a slow machine takes."""
    screen.line("Sluice demo")
    async with screen.kept_current():
        screen.busy("starting services", total=2)
        await asyncio.sleep(7)
        screen.step()
        await asyncio.sleep(4)
        screen.step()
        screen.line("all services are up")
        screen.busy("0 of 3 nodes are done")
        await asyncio.sleep(20)
        screen.line("the end")


def shown(*, is_terminal: bool) -> TimedOutput:
    async def story(sim: Sim) -> TimedOutput:
        out = TimedOutput(sim.clock.monotonic)
        await set_up(DemoScreen(clock=sim.clock, is_terminal=is_terminal, width=60, out=out))
        return out

    return run(story, seed=1)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_it_is_never_silent_for_more_than_three_seconds(is_terminal: bool) -> None:
    out = shown(is_terminal=is_terminal)
    assert max(later - sooner for sooner, later in pairwise(out.times)) <= AT_MOST
    assert SILENT_SECONDS < AT_MOST


def test_without_a_terminal_lines_say_what_is_going_on_and_for_how_long() -> None:
    text = shown(is_terminal=False).getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    lines = text.splitlines()
    assert lines[0] == "Sluice demo"
    assert lines[1].strip() == "… starting services, 0 of 2, for 2 s"
    assert "          … starting services, 1 of 2, for 10 s" in lines
    assert lines[-2].strip().startswith("… 0 of 3 nodes are done, for ")
    assert lines[-1] == "the end"


def test_on_a_terminal_a_bar_is_below_the_lines_and_gone_at_the_end() -> None:
    text = shown(is_terminal=True).getvalue()
    bars = text.split("\r\x1b[2K")
    assert any(
        bar.startswith("████████████░░░░░░░░░░░░  starting services, 1 of 2") for bar in bars
    )
    assert max(map(len, bars[1].splitlines())) < 60
    assert bars[-1] == "the end\n"


@pytest.mark.parametrize(
    ("environ", "no_tty", "is_terminal", "wanted"),
    [
        ({"TERM": "xterm"}, False, True, True),
        ({"TERM": "xterm"}, True, True, False),
        ({"TERM": "xterm"}, False, False, False),
        ({"TERM": "xterm", "CI": "true"}, False, True, False),
        ({"TERM": "dumb"}, False, True, False),
        ({}, False, True, False),
    ],
)
def test_the_live_view_is_for_terminals_alone(
    environ: dict[str, str], no_tty: bool, is_terminal: bool, wanted: bool
) -> None:
    assert wants_view(environ, no_tty=no_tty, is_terminal=is_terminal) is wanted
