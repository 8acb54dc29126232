"""The program `python -m demo`: its options, its run, and its exit code."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import msgspec

from demo.admin import MAX_UNAVAILABLE, POOL
from demo.environment import KILLABLE, DemoEnvironment, bus_client, demo_environment, kube_client
from demo.output import ProcessCost, cost_lines, hint_lines, process_cost, total_cost
from demo.scenario import DemoScenario
from demo.simulator import SCALE
from demo.verdict import (
    READER,
    DriverlessNodes,
    events_of,
    judge_run,
    observe_reports,
    verdict_lines,
)
from libs.bus.port import BusError
from libs.contracts.events import Event
from libs.kube.errors import KubeError
from libs.runtime.fatal import Fatal, describe_error
from libs.testing.errors import SimError
from libs.testing.nvml import NotBuilt, library

FEWEST, MOST = 1, 8
_USAGE = "make demo ARGS='[--nodes N] [--seed N] [--kill SERVICE] [--bad-driver] [--once]'"
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
    return msgspec.convert(vars(parser.parse_args(arguments)), Options)


class StopSignal:
    """SIGINT and SIGTERM: cancel the demo, or end `wait` where the demo only stays up."""

    def __init__(self) -> None:
        self._received = asyncio.Event()
        self._waiting = False
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._handle)

    async def wait(self) -> None:
        self._waiting = True
        await self._received.wait()

    def _handle(self) -> None:
        print_line("\nStopping all processes.")
        self._received.set()
        if not self._waiting and self._task is not None:
            self._task.cancel()
        self._waiting = False


async def run_demo(options: Options) -> int:
    """Run the demo, and return its exit code."""
    stop = StopSignal()
    nodes = [f"node-{number + 1}" for number in range(options.nodes)]
    duration = 35 * options.nodes + 45 + (60 if options.bad_driver else 0)
    machines = "machine" if options.nodes == 1 else "machines"
    print_line(
        f"Sluice demo: the real services on {options.nodes} simulated {machines} with 8 GPUs each."
        f"\n{SCALE}\nThe demo takes about {duration} seconds."
    )
    nvml, gpus = await asyncio.to_thread(stand_in_library)
    print_line(f"{gpus}\n")
    async with demo_environment(nodes, seed=options.seed, nvml=nvml) as up:
        started = up.clock.monotonic()
        driverless = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
        events, cpu_at_rest = await _run_scenario(up, options, nodes, stop, driverless)
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
    print_line("\nMemory and CPU used:")
    for line in cost_lines(costs, seconds=seconds):
        print_line(line)
    print_line(f"  at rest after the upgrade: {cpu_at_rest:.2f} of a core")
    print_line(
        "\nAudit of the run, over the journals of the API server and the agents, and the events:"
    )
    for line in verdict_lines(result):
        print_line(line)
    return 0 if result.is_ok else 1


def stand_in_library() -> tuple[str, str]:
    """Return the folder of the stand-in for NVML, built if necessary, and what is said about it."""
    try:
        folder = library()
    except NotBuilt as error:
        reason = str(error).splitlines()[0]
        return "", f"The GPUs are kept in memory, and not read through NVIDIA's library: {reason}"
    return str(folder), "Agents read the GPUs through pynvml, from a stand-in for NVIDIA's library."


async def _run_scenario(
    up: DemoEnvironment,
    options: Options,
    nodes: Sequence[str],
    stop: StopSignal,
    driverless: DriverlessNodes,
) -> tuple[tuple[Event, ...], float]:
    """Run the scenario; return all events on the bus and the CPU use at rest."""
    async with kube_client(up) as kube:
        scenario = DemoScenario(
            up,
            kube=kube,
            nodes=nodes,
            kill=options.kill,
            bad_driver=options.bad_driver,
            print_line=print_line,
        )
        await _while_processes_run(up, scenario.install())
        for line in hint_lines(up, nodes):
            print_line(line)
        print_line("\nThe nodes start; none has a driver yet.")
        async with bus_client(up) as bus, bus_client(up, READER) as reader:
            observed = observe_reports(driverless, bus=reader, clock=up.clock)
            async with scenario.print_events(bus), observed:
                await _while_processes_run(up, scenario.wait_until_ready())
                await _while_processes_run(up, scenario.upgrade())
                cpu_at_rest = await _cpu_at_rest(up)
                if not options.once:
                    print_line("\nThe upgrade is complete. Everything stays up until Ctrl-C.")
                    await _while_processes_run(up, stop.wait())
            return await events_of(bus), cpu_at_rest


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
