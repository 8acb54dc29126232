"""The program: what it can be asked for, from the first line to the verdict, and its exit code.

What is played is the story's, what it is played on the premises'.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, cast

import msgspec

from demo import hints, usage, verdict
from demo.admin import MAX_UNAVAILABLE, POOL, DemoAdmin
from demo.driverless import READER, DriverlessNodes, observe_reports
from demo.environment import KILLABLE, DemoEnvironment, bus_client, demo_environment, kube_client
from demo.scenario import DemoScenario
from demo.world import SCALE
from libs.bus.port import BusError
from libs.contracts.events import Event
from libs.kube.errors import KubeError
from libs.runtime.fatal import Fatal, describe_error
from libs.testing.errors import SimError

FEWEST, MOST = 1, 8
_USAGE = "make demo ARGS='[--nodes N] [--seed N] [--kill SERVICE] [--bad-driver] [--once]'"
_WHAT = "One driver upgrade of a small simulated fleet by all services, and the audit of it."
STOPPED = 130
_REST = 5.0
"""Seconds over which it is seen what all of it costs when nothing is to be done."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    nodes: int
    seed: int
    kill: str
    bad_driver: bool
    once: bool


def parse_options(arguments: Sequence[str]) -> Options:
    """From the command line; what is wrong is said, and exits 2."""
    parser = argparse.ArgumentParser(prog="make demo", usage=_USAGE, description=_WHAT)
    parser.add_argument(
        "--nodes",
        type=int,
        default=3,
        choices=range(FEWEST, MOST + 1),
        metavar="N",
        help=f"machines, {FEWEST} to {MOST} (3)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the world (0)")
    parser.add_argument(
        "--kill",
        default="",
        choices=[str(writer) for writer in KILLABLE],
        metavar="SERVICE",
        help="kill this one while a node is on its way: a service of the cluster, with -9, or, on"
        f" that node, an agent ({', '.join(KILLABLE)})",
    )
    parser.add_argument(
        "--bad-driver",
        action="store_true",
        help="the new driver loads nowhere: its rollout halts, until a person has mended the driver"
        " and releases it",
    )
    parser.add_argument(
        "--once", action="store_true", help="end after the story; else stay up until Ctrl-C"
    )
    return msgspec.convert(vars(parser.parse_args(arguments)), Options)


class StopSignal:
    """A signal ends the demo: at once, or, where it only stays up, by letting it go on."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._stays = False
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._end)

    async def wait(self) -> None:
        """Until somebody says that it is enough."""
        self._stays = True
        await self._asked.wait()

    def _end(self) -> None:
        print_line("\nEnding: all processes are asked to stop.")
        self._asked.set()
        if not self._stays and self._task is not None:
            self._task.cancel()
        self._stays = False


async def run_demo(asked: Options) -> int:
    """The whole demo; the exit code."""
    ending = StopSignal()
    nodes = [f"node-{number + 1}" for number in range(asked.nodes)]
    print_line(
        f"Sluice in small: the real services; machines with 8 GPUs, simulated: {asked.nodes}."
        f"\nTime is real, but {SCALE}.\nThe whole takes about {_seconds(asked)} seconds.\n"
    )
    async with demo_environment(nodes, seed=asked.seed) as up:
        began = up.clock.monotonic()
        witness = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
        events, idle = await _played(up, asked, nodes, ending, witness)
        costs = await asyncio.to_thread(process_costs, up)
        seconds = up.clock.monotonic() - began
        await up.processes.end()
        found = await verdict.judge_run(
            up.paths, nodes, events=events, pool_facts=witness.pool_facts, faults=bool(asked.kill)
        )
    print_line("\nWhat it cost:")
    for line in usage.table(costs, seconds=seconds):
        print_line(line)
    print_line(f"  while nothing was to be done: {idle:.2f} of a core")
    print_line("\nThe audit, over the API server's journal, the agents' and the events:")
    for line in verdict.lines(found):
        print_line(line)
    return 0 if found.is_ok else 1


def _seconds(told: Options) -> int:
    return 35 * told.nodes + 45 + (60 if told.bad_driver else 0)


async def _played(
    up: DemoEnvironment,
    told: Options,
    nodes: Sequence[str],
    ending: StopSignal,
    witness: DriverlessNodes,
) -> tuple[tuple[Event, ...], float]:
    """The story; then what was said on the bus, and how much of a core all of it takes at rest."""
    async with kube_client(up) as kube:
        story = DemoScenario(
            up,
            person=DemoAdmin(kube),
            kube=kube,
            nodes=nodes,
            kill=told.kill,
            bad_driver=told.bad_driver,
            say=print_line,
        )
        await _unless_failed(up, story.install())
        for line in hints.lines(up, nodes):
            print_line(line)
        print_line("\nThe fleet comes up; no machine has a driver yet.")
        async with bus_client(up) as bus, bus_client(up, READER) as reader:
            hearing = observe_reports(witness, bus=reader, clock=up.clock)
            async with story.print_events(bus), hearing:
                await _unless_failed(up, story.wait_until_ready())
                await _unless_failed(up, story.upgrade())
                idle = await _at_rest(up)
                if not told.once:
                    print_line("\nAll is done, and stays up: look around, and end it with Ctrl-C.")
                    await _unless_failed(up, ending.wait())
            return await verdict.events_of(bus), idle


async def _unless_failed(up: DemoEnvironment, doing: Coroutine[Any, Any, None]) -> None:
    """Do it; a process that ends meanwhile, and was not told to, ends it with its last lines."""
    task = asyncio.create_task(doing, name="story")
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


async def _at_rest(up: DemoEnvironment) -> float:
    before = await asyncio.to_thread(process_costs, up)
    began = up.clock.monotonic()
    await up.clock.sleep(_REST)
    after = await asyncio.to_thread(process_costs, up)
    used = sum(after[name].cpu_seconds - one.cpu_seconds for name, one in before.items())
    return used / (up.clock.monotonic() - began)


def process_costs(up: DemoEnvironment) -> dict[str, usage.ProcessCost]:
    """Of every process of the demo, and of this one."""
    pids = {name: worker.child.pid for name, worker in up.processes.processes.items()}
    pids |= {"nats-server": up.nats.pid, "demo": os.getpid()}
    return {name: usage.process_cost(pid) for name, pid in pids.items()}


def print_line(line: str) -> None:
    """To whoever watches."""
    print(line, flush=True)


def main() -> int:
    """The program."""
    told = parse_options(sys.argv[1:])
    # Problems of ours are said by what we raise; libraries need not add to the story.
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(run_demo(told))
    except (asyncio.CancelledError, KeyboardInterrupt):
        print_line("\nStopped before its end: nothing was judged, and nothing is left.")
        return STOPPED
    except (Fatal, SimError, BusError, KubeError, OSError, ExceptionGroup) as error:
        print(f"\nThe demo failed: {_words(error)}", file=sys.stderr)
        return 1


def _words(error: BaseException) -> str:
    """The first of several; what a process said last keeps its lines."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return str(error) if isinstance(error, SimError) else describe_error(error)
