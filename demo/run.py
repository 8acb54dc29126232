"""One run of the demo: start everything, play the scenario, stop everything, and audit the run."""

import asyncio
import os
import random
import shutil
import signal
import sys
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec

from demo.admin import DemoAdmin
from demo.costs import ProcessCost, cost_lines, process_cost, total_cost
from demo.director import Director
from demo.environment import (
    SHARE,
    DemoEnvironment,
    bus_client,
    demo_environment,
    kube_client,
    person_access,
)
from demo.fleet import Fleet, make_fleet
from demo.hints import entry_line, hint_lines, write_environment
from demo.observed import FleetObserver
from demo.options import Options
from demo.report import report_lines
from demo.scenario import make_script
from demo.screen import DemoScreen, wants_view
from demo.verdict import (
    READER,
    DriverlessNodes,
    events_of,
    judge_run,
    observe_reports,
    verdict_lines,
)
from demo.world import SCALE
from libs.bus.port import Bus
from libs.contracts.events import Event
from libs.ctl.watch.screen import Guide
from libs.runtime.clock import SystemClock
from libs.testing.nvml import NotBuilt, library
from libs.testing.simulation import make_env

_REST_SECONDS = 2.0
"""Seconds for which the CPU use at rest is measured."""


class StopSignal:
    """SIGINT and SIGTERM: cancel the demo, or end `wait` where the demo only stays up."""

    def __init__(self, screen: DemoScreen) -> None:
        self._screen = screen
        self._received = asyncio.Event()
        self._waiting = False
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._handle)

    async def wait(self) -> None:
        self._waiting = True
        await self._received.wait()

    def _handle(self) -> None:
        self._screen.line("\nStopping all processes.")
        self._screen.busy("stopping all processes")
        self._received.set()
        if not self._waiting and self._task is not None:
            self._task.cancel()
        self._waiting = False


async def run_demo(options: Options) -> int:
    """Run the demo, and return its exit code."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    has_view = wants_view(os.environ, no_tty=options.no_tty, is_terminal=is_terminal)
    width = shutil.get_terminal_size().columns
    screen = DemoScreen(clock=SystemClock(), is_terminal=has_view, width=width)
    stop = StopSignal(screen)
    async with screen.kept_current():
        return await _run_demo(options, screen, stop, has_view=has_view)


async def _run_demo(
    options: Options, screen: DemoScreen, stop: StopSignal, *, has_view: bool
) -> int:
    fleet = make_fleet(options.nodes)
    for line in opening_lines(fleet, speed=options.speed, is_real=options.real):
        screen.line(line)
    screen.busy("building the stand-in for NVIDIA's library")
    nvml, gpus = await asyncio.to_thread(stand_in_library, fleet.nodes)
    screen.line(f"{gpus}\n")
    control_plane = "a real control plane" if options.real else "the API server"
    screen.busy(f"starting NATS and {control_plane}")
    async with demo_environment(
        fleet.nodes, seed=options.seed, speed=options.speed, nvml=nvml, is_real=options.real
    ) as up:
        started = up.clock.monotonic()
        driverless = [
            DriverlessNodes(pool=pool.key, max_unavailable=pool.max_unavailable)
            for pool in fleet.pools
        ]
        run = _Run(up, options, fleet, screen, stop, driverless)
        events, cpu_at_rest = await run.scenario(has_view=has_view)
        screen.busy("stopping all processes and reading their journals")
        costs = await asyncio.to_thread(process_costs, up)
        seconds = up.clock.monotonic() - started
        await up.end()
        screen.busy("auditing the run")
        result = await judge_run(
            up.paths,
            fleet.nodes,
            events=events,
            pool_facts=[facts for each in driverless for facts in each.pool_facts],
            faults=bool(options.kill or up.processes.restarts),
        )
    screen.busy("")
    screen.line("\nMemory and CPU used:")
    for line in cost_lines(costs, seconds=seconds):
        screen.line(line)
    screen.line(f"  {rest_text(cpu_at_rest)}")
    screen.line(
        "\nAudit of the run, over the journals of the API server and the agents, and the events:"
    )
    for line in verdict_lines(result):
        screen.line(line)
    return 0 if result.is_ok else 1


def opening_lines(fleet: Fleet, *, speed: float, is_real: bool) -> Iterator[str]:
    """Return what the demo is."""
    pools = " and ".join(f"{len(pool.nodes)} in pool {pool.name}" for pool in fleet.pools)
    count = len(fleet.nodes)
    yield (
        f"Sluice demo: the real services on {count} simulated"
        f" {'machine' if count == 1 else 'machines'} with 8 GPUs each, {pools}."
    )
    if is_real:
        yield "The control plane is a real one; the machines are simulated."
    pace = f" The machines run at {speed:g} times their usual speed." if speed != 1.0 else ""
    yield f"{SCALE}{pace}"


def stand_in_library(nodes: Sequence[str]) -> tuple[str, str]:
    """Return the folder of the stand-in for NVML, built if necessary, and what is said about it."""
    try:
        folder = library()
    except NotBuilt as error:
        reason = str(error).splitlines()[0]
        return "", f"The GPUs are kept in memory, and not read through NVIDIA's library: {reason}"
    measured = " and ".join(nodes[::SHARE])
    others = "; other GPUs are kept in memory" if len(nodes) > 1 else ""
    return str(folder), (
        f"The agents of {measured} read their GPUs through pynvml, from a stand-in for NVIDIA's"
        f" library{others}."
    )


class _Run(msgspec.Struct, frozen=True):
    """One run of the scenario, and who sees it."""

    up: DemoEnvironment
    options: Options
    fleet: Fleet
    screen: DemoScreen
    stop: StopSignal
    driverless: Sequence[DriverlessNodes]

    async def scenario(self, *, has_view: bool) -> tuple[tuple[Event, ...], float | None]:
        """Run the scenario; return all events on the bus and the CPU use at rest."""
        up, screen = self.up, self.screen
        async with kube_client(up) as kube:
            env = make_env(clock=up.clock, random=random.Random(up.seed))
            observer = FleetObserver(self.fleet, kube, env=env)
            director = Director(
                up,
                fleet=self.fleet,
                script=make_script(self.fleet),
                admin=DemoAdmin(kube),
                observer=observer,
                access=person_access(up),
                kill=self.options.kill,
                screen=screen,
            )
            await _while_processes_run(up, director, director.install())
            await asyncio.to_thread(write_environment, up)
            hints = list(hint_lines(up, self.fleet))
            screen.line("")
            for line in hints:
                screen.line(line)
            screen.line("\nThe nodes start; none has a driver yet.")
            async with bus_client(up) as bus, bus_client(up, READER) as reader:
                observed = observe_reports(*self.driverless, bus=reader, clock=up.clock)
                guide = Guide(title=f"other shell: {entry_line(up.paths)}", help=hints)
                stays_up = not self.options.once
                view = screen.live(up, guide, stays_up=stays_up) if has_view else nullcontext()
                async with view, observer.followed(), director.print_events(bus), observed:
                    cpu_at_rest = await self._play(director, bus)
                return await events_of(bus), cpu_at_rest

    async def _play(self, director: Director, bus: Bus) -> float | None:
        """Play the scenes; return the CPU use at rest; None: something happened meanwhile."""
        up, screen = self.up, self.screen
        await _while_processes_run(up, director, director.play())
        screen.busy("measuring the CPU use at rest")
        began = up.clock.now()
        measured = await _cpu_at_rest(up)
        screen.busy("")
        events, seen = await events_of(bus), director.observed()
        cpu_at_rest = measured if is_rest(events, since=began) else None
        screen.report(report_lines(events, self.fleet, seen, director.versions()))
        if not self.options.once:
            screen.line("\nThe upgrade is complete. Everything stays up until Ctrl-C.")
            following = asyncio.create_task(director.follow(), name="follow")
            try:
                await _while_processes_run(up, director, self.stop.wait())
            finally:
                following.cancel()
                await asyncio.wait({following})
        return cpu_at_rest


async def _while_processes_run(
    up: DemoEnvironment, director: Director, coroutine: Coroutine[Any, Any, None]
) -> None:
    """Await a coroutine; raise the failure of a process that ends by itself meanwhile.

    A service is started again, and told.
    """
    task = asyncio.create_task(coroutine, name="scenario")
    watch = asyncio.create_task(up.processes.wait_failed(director.tell_restart), name="watch")
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not task.done():
            raise watch.result()
        await task
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.wait({task, watch})


async def _cpu_at_rest(up: DemoEnvironment) -> float:
    """Return the CPU use of all processes at rest, in cores."""
    before = await asyncio.to_thread(process_costs, up)
    started = up.clock.monotonic()
    await up.clock.sleep(_REST_SECONDS)
    after = await asyncio.to_thread(process_costs, up)
    used = sum(
        after[name].cpu_seconds - cost.cpu_seconds for name, cost in before.items() if name in after
    )
    return used / (up.clock.monotonic() - started)


def is_rest(events: Iterable[Event], *, since: float) -> bool:
    """Report whether nothing has happened, and no plan was asked for, since then."""
    return all(event.at < since for event in events)


def rest_text(cpu_at_rest: float | None) -> str:
    if cpu_at_rest is None:
        return "at rest: not measured, because something happened or was asked meanwhile"
    return f"at rest after the upgrade: {cpu_at_rest:.2f} of a core"


def process_costs(up: DemoEnvironment) -> dict[str, ProcessCost]:
    """Return the costs of all processes of the demo, this one included.

    Those of a machine include the processes in which its agents use NVML.
    """
    pids = {
        name: process.child.pid
        for name, process in up.processes.processes.items()
        if process.child.problem() is None  # a service that has ended is started again
    }
    costs = {_shown(name): total_cost(pid) for name, pid in pids.items()}
    alone = {"nats-server": up.nats.pid, "demo": os.getpid()}
    return costs | {name: process_cost(pid) for name, pid in alone.items()}


def _shown(process: str) -> str:
    """Return the name of a process; one of several machines has the first and the last of them."""
    first, *_, last = process.split(",") if "," in process else (process, process)
    return process if first == last else f"{first} to {last}"
