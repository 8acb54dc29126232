"""The program `python -m demo`: its options, its run, and its exit code."""

import argparse
import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import msgspec

from demo.admin import MAX_UNAVAILABLE, POOL
from demo.environment import KILLABLE, DemoEnvironment, bus_client, demo_environment, kube_client
from demo.output import ProcessCost, cost_lines, hint_lines, process_cost, total_cost
from demo.scenario import DemoScenario
from demo.screen import DemoScreen, wants_view
from demo.simulator import SCALE
from demo.verdict import (
    READER,
    DemoVerdict,
    DriverlessNodes,
    events_of,
    judge_run,
    observe_reports,
    verdict_lines,
)
from libs.bus.port import BusError
from libs.contracts.events import Event
from libs.kube.errors import KubeError
from libs.runtime.clock import SystemClock
from libs.runtime.fatal import Fatal, describe_error
from libs.testing.errors import SimError
from libs.testing.nvml import NotBuilt, library

FEWEST, MOST = 1, 8
_USAGE = (
    "make demo ARGS='[--nodes N] [--seed N] [--kill SERVICE] [--bad-driver] [--once] [--no-tty]'"
)
_WHAT = "Upgrade the driver of a small simulated fleet with all services, and audit the run."
STOPPED = 130
_REST_SECONDS = 5.0
"""Seconds for which the CPU use at rest is measured."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line options."""

    nodes: int
    seed: int
    kill: str
    bad_driver: bool
    once: bool
    no_tty: bool


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line; print errors and exit with 2."""
    parser = argparse.ArgumentParser(prog="make demo", usage=_USAGE, description=_WHAT)
    parser.add_argument(
        "--nodes",
        type=int,
        default=3,
        choices=range(FEWEST, MOST + 1),
        metavar="N",
        help=f"number of machines, {FEWEST} to {MOST} (default 3)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the simulation (default 0)"
    )
    parser.add_argument(
        "--kill",
        default="",
        choices=[str(writer) for writer in KILLABLE],
        metavar="SERVICE",
        help="kill this service with SIGKILL while a node is being upgraded: a cluster role, or an"
        f" agent on that node ({', '.join(KILLABLE)})",
    )
    parser.add_argument(
        "--bad-driver",
        action="store_true",
        help="the new driver fails to load: the rollout halts until the administrator repairs the"
        " driver and releases the rollout",
    )
    parser.add_argument(
        "--once", action="store_true", help="exit after the upgrade instead of staying up"
    )
    parser.add_argument(
        "--no-tty",
        action="store_true",
        help="print lines also on a terminal, in place of the live view",
    )
    return msgspec.convert(vars(parser.parse_args(arguments)), Options)


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
    nodes = [f"node-{number + 1}" for number in range(options.nodes)]
    duration = 35 * options.nodes + 45 + (60 if options.bad_driver else 0)
    machines = "machine" if options.nodes == 1 else "machines"
    screen.line(
        f"Sluice demo: the real services on {options.nodes} simulated {machines} with 8 GPUs each."
        f"\n{SCALE}\nThe demo takes about {duration} seconds."
    )
    screen.busy("building the stand-in for NVIDIA's library")
    nvml, gpus = await asyncio.to_thread(stand_in_library)
    screen.line(f"{gpus}\n")
    screen.busy("starting NATS and the API server")
    async with demo_environment(nodes, seed=options.seed, nvml=nvml) as up:
        started = up.clock.monotonic()
        driverless = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
        run = _Run(up, options, nodes, screen, stop, driverless)
        events, cpu_at_rest = await run.scenario(has_view=has_view)
        screen.busy("stopping all processes and reading their journals")
        costs = await asyncio.to_thread(process_costs, up)
        seconds = up.clock.monotonic() - started
        await up.processes.end()
        result = await judge_run(
            up.paths,
            nodes,
            events=events,
            pool_facts=driverless.pool_facts,
            faults=bool(options.kill),
        )
    screen.busy("")
    _print_result(screen, result, costs, seconds=seconds, cpu_at_rest=cpu_at_rest)
    return 0 if result.is_ok else 1


def _print_result(
    screen: DemoScreen,
    result: DemoVerdict,
    costs: Mapping[str, ProcessCost],
    *,
    seconds: float,
    cpu_at_rest: float,
) -> None:
    screen.line("\nMemory and CPU used:")
    for line in cost_lines(costs, seconds=seconds):
        screen.line(line)
    screen.line(f"  at rest after the upgrade: {cpu_at_rest:.2f} of a core")
    screen.line(
        "\nAudit of the run, over the journals of the API server and the agents, and the events:"
    )
    for line in verdict_lines(result):
        screen.line(line)


def stand_in_library() -> tuple[str, str]:
    """Return the folder of the stand-in for NVML, built if necessary, and what is said about it."""
    try:
        folder = library()
    except NotBuilt as error:
        reason = str(error).splitlines()[0]
        return "", f"The GPUs are kept in memory, and not read through NVIDIA's library: {reason}"
    return str(folder), "Agents read the GPUs through pynvml, from a stand-in for NVIDIA's library."


class _Run(msgspec.Struct, frozen=True):
    """One run of the scenario, and who sees it."""

    up: DemoEnvironment
    options: Options
    nodes: Sequence[str]
    screen: DemoScreen
    stop: StopSignal
    driverless: DriverlessNodes

    async def scenario(self, *, has_view: bool) -> tuple[tuple[Event, ...], float]:
        """Run the scenario; return all events on the bus and the CPU use at rest."""
        up, screen = self.up, self.screen
        async with kube_client(up) as kube:
            scenario = DemoScenario(
                up,
                kube=kube,
                nodes=self.nodes,
                kill=self.options.kill,
                bad_driver=self.options.bad_driver,
                screen=screen,
            )
            await _while_processes_run(up, scenario.install())
            for line in hint_lines(up, self.nodes):
                screen.line(line)
            screen.line("\nThe nodes start; none has a driver yet.")
            async with bus_client(up) as bus, bus_client(up, READER) as reader:
                observed = observe_reports(self.driverless, bus=reader, clock=up.clock)
                view = screen.live(up) if has_view else nullcontext()
                async with view, scenario.print_events(bus), observed:
                    cpu_at_rest = await self._play(scenario)
                return await events_of(bus), cpu_at_rest

    async def _play(self, scenario: DemoScenario) -> float:
        """Play the scenes; return the CPU use at rest."""
        up, screen = self.up, self.screen
        await _while_processes_run(up, scenario.wait_until_ready())
        await _while_processes_run(up, scenario.upgrade())
        screen.busy("measuring the CPU use at rest")
        cpu_at_rest = await _cpu_at_rest(up)
        screen.busy("")
        if not self.options.once:
            screen.line("\nThe upgrade is complete. Everything stays up until Ctrl-C.")
            await _while_processes_run(up, self.stop.wait())
        return cpu_at_rest


async def _while_processes_run(up: DemoEnvironment, coroutine: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine; raise the failure of a process that ends by itself meanwhile."""
    task = asyncio.create_task(coroutine, name="scenario")
    watch = asyncio.create_task(up.processes.wait_failed(), name="watch")
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
    used = sum(after[name].cpu_seconds - cost.cpu_seconds for name, cost in before.items())
    return used / (up.clock.monotonic() - started)


def process_costs(up: DemoEnvironment) -> dict[str, ProcessCost]:
    """Return the costs of all processes of the demo, this one included.

    Those of a machine include the processes in which its agents use NVML.
    """
    pids = {name: process.child.pid for name, process in up.processes.processes.items()}
    costs = {name: total_cost(pid) for name, pid in pids.items()}
    alone = {"nats-server": up.nats.pid, "demo": os.getpid()}
    return costs | {name: process_cost(pid) for name, pid in alone.items()}


def print_line(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = parse_options(sys.argv[1:])
    # Failures are printed below; log lines of libraries would only disturb the output.
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(run_demo(options))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print_line("\nInterrupted: the run was not audited. All processes and files are removed.")
        return STOPPED
    except (Fatal, SimError, BusError, KubeError, OSError, ExceptionGroup) as error:
        print(f"\nThe demo failed: {_description(error)}", file=sys.stderr)
        return 1


def _description(error: BaseException) -> str:
    """Describe the first error of a group; keep the lines of a process's last output."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return str(error) if isinstance(error, SimError) else describe_error(error)
