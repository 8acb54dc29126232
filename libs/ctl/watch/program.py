"""Run the live view: follow the sources, draw what changed, and do what keys ask for."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, Final

import msgspec

from libs.ctl.chosen_pools import chosen_pools
from libs.ctl.cluster import Cluster, open_cluster
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.options import Access
from libs.ctl.text import clock_time
from libs.ctl.views.frame.compose import frame, listed_room
from libs.ctl.watch.actions import Write, ask_why, carry_out, planned_write, why_lines
from libs.ctl.watch.fleet import WatchedFleet
from libs.ctl.watch.keys import Action, keys_of, press
from libs.ctl.watch.screen import Guide, Panel, Screen, arrange, selected_index, with_newer_answer
from libs.ctl.watch.telemetry import require_address
from libs.ctl.watch.terminal import Terminal, require_terminal
from libs.fleet.status import EventLine

DRAW_EVERY: Final = 0.5
"""Seconds between two frames while the fleet changes; keys are answered at once."""
CLOCK_EVERY: Final = 1.0
"""Seconds between two frames while it does not: ages are in seconds."""
ASK_EVERY: Final = 5.0
"""Seconds between an answer that is shown and the next question about its node."""


async def watch(access: Access, pool: str, telemetry: str) -> int:
    """Show the live view until a key or a signal ends it; return the exit code."""
    require_terminal()
    async with open_view(access, pool=pool, telemetry=telemetry) as view:
        return await view.run()


@asynccontextmanager
async def open_view(
    access: Access, *, pool: str, telemetry: str, guide: Guide | None = None
) -> AsyncGenerator["LiveView"]:
    """Connect, and fail before anything is drawn if there is nothing to show."""
    if telemetry:
        require_address(telemetry)
    async with open_cluster(access) as cluster:
        rollouts = await cluster.rollouts()
        if pool:
            chosen_pools(rollouts, pool, every=False)
        versions = await cluster.versions(rollouts)
        fleet = WatchedFleet(access, cluster, versions, pool=pool, telemetry=telemetry, guide=guide)
        yield LiveView(access, cluster, fleet, person=await cluster.user())


class LiveView:
    """One run of the live view."""

    def __init__(
        self, access: Access, cluster: Cluster, fleet: WatchedFleet, *, person: str
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._person = person
        self._fleet = fleet
        self._terminal = Terminal(on_keys=self._keys_pressed, on_resize=self._wake)
        self._screen = Screen()
        self._watched = fleet.watched()
        self._woken = asyncio.Event()
        self._ended: int | None = None
        self._asked: Write | None = None
        """What the question on the screen is about."""
        self._questions = asyncio.Lock()
        """One is asked at a time."""
        self._tasks: set[asyncio.Task[None]] = set()

    def tell(self, message: str) -> None:
        """List a sentence of the caller's among the events."""
        line = EventLine(at=time.time(), writer="", node="", kind="", message=message)
        self._fleet.events.add(line)

    async def run(self, *, owns_process: bool = True) -> int:
        """Run until a key or a signal ends it; the signals are those of a process of its own."""
        signals = self._stop_on_signals() if owns_process else nullcontext()
        with _without_logs(), self._terminal.open(), signals:
            followed = asyncio.create_task(self._fleet.run())
            draw = asyncio.create_task(self._draw())
            try:
                await asyncio.wait({draw, followed}, return_when=asyncio.FIRST_COMPLETED)
                for task in (draw, followed):
                    if task.done():
                        task.result()
            finally:
                running = {draw, followed, *self._tasks}
                for task in running:
                    task.cancel()
                await asyncio.wait(running)
        return self._ended or ExitCode.DONE

    async def _draw(self) -> None:
        """Draw frames until the end is asked for."""
        while self._ended is None:
            self._draw_once()
            self._woken.clear()
            try:
                async with asyncio.timeout(DRAW_EVERY):
                    await self._woken.wait()
            except TimeoutError:
                if not self._fleet.state.is_changed:
                    await self._wait(CLOCK_EVERY - DRAW_EVERY)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    def _draw_once(self) -> None:
        width, height = self._terminal.size
        self._watched = self._fleet.watched()
        room = listed_room(self._watched, width=width, height=height)
        self._screen = arrange(self._watched.nodes, self._screen, room=room)
        self._terminal.show(
            frame(self._watched, self._screen, now=time.time(), width=width, height=height)
        )

    def _wake(self) -> None:
        self._woken.set()

    @contextmanager
    def _stop_on_signals(self) -> Generator[None]:
        """End on signals that would leave the terminal as it is. Ctrl-C is asyncio's."""
        loop, signals = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGHUP)
        for each in signals:
            loop.add_signal_handler(each, self._end, ExitCode.INTERRUPTED)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)

    def _end(self, code: ExitCode) -> None:
        self._ended = code
        self._wake()

    def _keys_pressed(self, data: bytes) -> None:
        if not data:
            self._end(ExitCode.INTERRUPTED)  # the terminal is gone
        width, height = self._terminal.size
        for key in keys_of(data):
            self._screen, action = press(
                key, self._watched, self._screen, width=width, height=height
            )
            if action is not None:
                self._act(action)
        self._wake()

    def _act(self, action: Action) -> None:
        match action:
            case Action.QUIT:
                self._end(ExitCode.DONE)
            case Action.WHY:
                self._start(self._show_why())
            case Action.CONFIRM if self._asked is not None:
                self._start(self._carry_out(self._asked))
            case Action.CONFIRM | Action.DENY:
                self._say("nothing was written")
            case _:
                self._plan(action)

    def _plan(self, action: Action) -> None:
        """Carry an action out, after a question if nodes would be hurt."""
        try:
            write = planned_write(
                action, self._watched, self._screen, self._fleet.state, person=self._person
            )
        except Failure as failure:
            self._say(str(failure))
            return
        if not write.planned.risk:
            self._start(self._carry_out(write))
            return
        risk = write.planned.risk
        self._asked = write
        panel = Panel(
            title=f"{action.value} {write.pool}?",
            lines=("", f"{risk[0].upper()}{risk[1:]}.", "", "Go on?"),
            asks=True,
        )
        self._screen = msgspec.structs.replace(self._screen, panel=panel)

    async def _carry_out(self, write: Write) -> None:
        self._asked = None
        self._say(f"writing to {write.pool} …")
        try:
            self._say(await carry_out(self._cluster, write))
        except Failure as failure:
            self._say(str(failure))

    async def _show_why(self) -> None:
        """Open a panel with why the selected node is not done, and keep that current."""
        nodes = self._watched.nodes
        if not nodes:
            self._say("there is no node to ask about")
            return
        node = nodes[selected_index(nodes, self._screen)].name
        self._say(f"asking about {node} …")
        try:
            panel = await self._why(node)
        except Failure as failure:
            self._say(str(failure))
            return
        self._screen = msgspec.structs.replace(self._screen, panel=panel, message="")
        self._wake()
        await self._keep_current(panel)

    async def _keep_current(self, panel: Panel) -> None:
        """Ask again while the answer is open; its title says how old it is if none comes."""
        while True:
            await asyncio.sleep(ASK_EVERY)
            if self._screen.panel is None or self._screen.panel.opened != panel.opened:
                return
            with suppress(Failure):
                newer = await self._why(panel.node)
                panel = msgspec.structs.replace(newer, opened=panel.opened)
                self._screen = with_newer_answer(self._screen, panel)
                self._wake()

    async def _why(self, node: str) -> Panel:
        async with self._questions:
            answer = await ask_why(self._access, node)
        now = time.time()
        title = f"why {node}, as of {clock_time(now)[11:]} UTC"
        return Panel(title=title, lines=why_lines(answer, now=now), node=node, opened=now)

    def _say(self, message: str) -> None:
        self._screen = msgspec.structs.replace(self._screen, message=message)
        self._wake()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextmanager
def _without_logs() -> Generator[None]:
    """Keep the libraries from writing into the frames: the line of sources tells failures."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
