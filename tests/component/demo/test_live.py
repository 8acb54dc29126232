"""The demo on a terminal: a bar while it is set up, the live view, and lines once that is left."""

import os
import signal

import pytest

from demo.cli import STOPPED
from tests.component.ctl.terminal import in_terminal

WITHIN = 240.0
"""Seconds until services and a machine are up, on a busy computer."""

pytestmark = pytest.mark.timeout(2 * WITHIN)


async def test_the_demo_shows_the_live_view_and_goes_on_in_lines_when_it_is_left() -> None:
    environ = {
        name: os.environ[name] for name in ("HOME", "TMPDIR", "VIRTUAL_ENV") if name in os.environ
    }
    async with in_terminal("--nodes", "1", environ=environ, width=120, program="demo") as session:
        await session.shows("░  starting services, ", within=WITHIN)
        await session.shows(
            *("Sluice  1 node  other shell: . /", "/env", "node-1", "waits: current"), within=WITHIN
        )
        session.press("?")
        await session.shows("Keys and sources", "sluice status  # the fleet")
        session.press("?")
        assert session.screen.modes == {"?1049"}
        session.press("j")
        await session.shows("nvidiadriver-training", "570.86.15", within=WITHIN)
        session.press("q")
        text = await session.shows(
            "The live view is closed; the demo goes on in lines. Everything stays up until Ctrl-C."
        )
        assert session.screen.modes == {"?7", "?25"}
        assert "The nodes start; none has a driver yet." in text
        await session.shows("0 of 1 nodes are done", within=WITHIN)
        session.process.send_signal(signal.SIGINT)
        assert await session.end() == STOPPED
        assert session.echoes
