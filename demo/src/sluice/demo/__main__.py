"""`python -m sluice.demo`: one upgrade of a small simulated fleet, and the audit of it."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, cast

import msgspec

from sluice.bus.port import BusError
from sluice.contracts.events import Event
from sluice.demo import usage, verdict
from sluice.demo.person import USER, Person
from sluice.demo.premises import SERVICES, Premises, listening_at, person_at, premises
from sluice.demo.story import Story
from sluice.demo.worlds import SCALE
from sluice.kube.errors import KubeError
from sluice.runtime.fatal import Fatal, cause
from sluice.sim.errors import SimError

FEWEST, MOST = 1, 8
_STOPPED = 130


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    nodes: int
    seed: int
    kill: str
    bad_driver: bool
    once: bool


def options(arguments: Sequence[str]) -> Options:
    """From the command line; what is wrong is said, and exits 2."""
    parser = argparse.ArgumentParser(prog="python -m sluice.demo", description=__doc__)
    parser.add_argument(
        "--nodes", type=int, default=3, choices=range(FEWEST, MOST + 1), help="machines (3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the simulated world (0)")
    parser.add_argument(
        "--kill",
        default="",
        choices=[str(part.writer) for part in SERVICES],
        help="kill this service with -9 while a node is on its way",
    )
    parser.add_argument(
        "--bad-driver",
        action="store_true",
        help="the new driver loads nowhere: its rollout halts, and people go back to the old one",
    )
    parser.add_argument(
        "--once", action="store_true", help="end after the story; else stay up until Ctrl-C"
    )
    return msgspec.convert(vars(parser.parse_args(arguments)), Options)


class Ending:
    """A signal ends the demo: at once, or, where it only stays up, by letting it go on."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._stays = False
        self._task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._end)

    async def stay(self) -> None:
        """Until somebody says that it is enough."""
        self._stays = True
        await self._asked.wait()

    def _end(self) -> None:
        self._asked.set()
        if not self._stays and self._task is not None:
            self._task.cancel()
        self._stays = False


async def play(told: Options) -> int:
    """The whole demo; the exit code."""
    ending = Ending()
    nodes = [f"node-{number + 1}" for number in range(told.nodes)]
    say(
        f"Sluice in small: {told.nodes} simulated machines with 8 GPUs each, and the real services."
        f"\nTime is real, but {SCALE}.\nThe whole takes about {35 * told.nodes + 45} seconds."
    )
    async with premises(nodes, seed=told.seed) as up:
        began = up.clock.monotonic()
        events = await _played(up, told, nodes, ending)
        costs = await asyncio.to_thread(costs_of, up)
        seconds = up.clock.monotonic() - began
        await up.crew.end()
        found = await verdict.judged(up.places, nodes, events=events, faults=bool(told.kill))
    say("\nWhat it cost:")
    for line in usage.table(costs, seconds=seconds):
        say(line)
    say("\nThe audit, over the API server's journal, the agents' and the events:")
    for line in verdict.lines(found):
        say(line)
    return 0 if found.well else 1


async def _played(
    up: Premises, told: Options, nodes: Sequence[str], ending: Ending
) -> tuple[Event, ...]:
    """The story, and then what was said on the bus."""
    async with person_at(up) as kube:
        story = Story(
            up,
            person=Person(kube),
            kube=kube,
            nodes=nodes,
            kill=told.kill,
            bad_driver=told.bad_driver,
            say=say,
        )
        await _unless_failed(up, story.begin())
        for line in where(up):
            say(line)
        async with listening_at(up) as bus:
            async with story.told(bus):
                await _unless_failed(up, story.come_up())
                await _unless_failed(up, story.move())
            if not told.once:
                say("\nAll is done, and stays up: look around, and end it with Ctrl-C.")
                await _unless_failed(up, ending.stay())
            return await verdict.events_of(bus)


async def _unless_failed(up: Premises, doing: Coroutine[Any, Any, None]) -> None:
    """Do it; a process that ends meanwhile, and was not told to, ends it with its last lines."""
    task = asyncio.create_task(doing, name="story")
    watch = asyncio.create_task(up.crew.failed(), name="watch")
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not task.done():
            raise watch.result()
        await task
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.wait({task, watch})


def where(up: Premises) -> Iterator[str]:
    """Where to look while it runs."""
    yield "\nLook around meanwhile:"
    yield f"  export KUBECONFIG={up.places.kubeconfig(USER)}"
    yield "  kubectl get nodes -L nvidia.com/gpu-driver-upgrade-state -w"
    yield "  kubectl get rollouts"
    for name, worker in up.crew.workers.items():
        yield f"  {name:<17} {worker.page}"


def costs_of(up: Premises) -> dict[str, usage.Cost]:
    """Of every process of the demo, and of this one."""
    pids = {name: worker.child.pid for name, worker in up.crew.workers.items()}
    pids |= {"nats-server": up.nats.pid, "demo": os.getpid()}
    return {name: usage.cost(pid) for name, pid in pids.items()}


def say(line: str) -> None:
    """To whoever watches."""
    print(line, flush=True)


def main() -> int:
    """The program."""
    told = options(sys.argv[1:])
    # Problems of ours are said by what we raise; libraries need not add to the story.
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(play(told))
    except asyncio.CancelledError:
        say("\nStopped before its end: nothing was judged, and nothing is left.")
        return _STOPPED
    except (Fatal, SimError, BusError, KubeError, ExceptionGroup) as error:
        print(f"\nThe demo failed: {_words(error)}", file=sys.stderr)
        return 1


def _words(error: BaseException) -> str:
    """The first of several; what a process said last keeps its lines."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return str(error) if isinstance(error, SimError) else cause(error)


if __name__ == "__main__":
    sys.exit(main())
