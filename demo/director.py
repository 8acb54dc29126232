"""Carry the scenario out, and tell what happens: events, waits, what others do, ends of drivers."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from demo.admin import DemoAdmin
from demo.carry_out import ADMINISTRATOR, ScenarioActions
from demo.environment import SERVICES, DemoEnvironment
from demo.fleet import Fleet
from demo.node_agents import AGENT_KINDS
from demo.observed import DriverExit, FleetObserver, Observed
from demo.output import EventFormatter, exit_line
from demo.people import Setting, holds, settings_of, still_unseen, told_changes
from demo.process_group import ManagedProcess
from demo.scenario import OLD, Cue, Progress, Script, is_over, next_turn
from demo.screen import DemoScreen
from libs.bus.events import RecordedEvent, read_events
from libs.bus.port import Bus
from libs.contracts.rollout import RolloutPhase
from libs.ctl.options import Access
from libs.runtime.fatal import Fatal
from libs.testing.errors import ServerFailed

POLL_INTERVAL: Final = 0.5
_CONCURRENT_STARTS: Final = 2
"""The cores of a small machine: a start mostly needs the CPU."""
_STALLED_SECONDS: Final = 300.0
"""The demo fails if nothing changes for longer, even on the slowest machine."""
_LOG_LINES: Final = 3
_NAMED: Final = 3
"""Up to so many nodes in flight are named, with their states; more are counted."""


class Director:
    """One run of a script, in an environment that is up."""

    def __init__(
        self,
        up: DemoEnvironment,
        *,
        fleet: Fleet,
        script: Script,
        admin: DemoAdmin,
        observer: FleetObserver,
        access: Access,
        kill: str,
        screen: DemoScreen,
    ) -> None:
        self._up = up
        self._fleet = fleet
        self._script = script
        self._admin = admin
        self._observer = observer
        self._kill = kill
        self._screen = screen
        self._clock = up.clock
        self._formatter = EventFormatter(observer.versions, began=up.clock.now())
        self._progress = Progress()
        self._settings: dict[Setting, str] = {}
        """What was set when it was looked at last."""
        self._exits: dict[str, list[str]] = {}
        """Ids of the ended driver containers that were told, by pod."""
        self._wrote: dict[str, list[str]] = {}
        """The end of the log that was told last, by pod."""
        self._actions = ScenarioActions(
            up, admin=admin, access=access, screen=screen, tell=self._tell
        )

    async def install(self) -> None:
        """Install, apply the policies, and start services and machines."""
        up, screen = self._up, self._screen
        screen.busy("installing the definitions")
        await up.install(self._admin)
        names = ", ".join(pool.name for pool in self._fleet.pools)
        self._tell(f"kubectl apply: NVIDIADrivers of {names} with version {OLD}")
        await self._admin.apply_pools(self._fleet.pools, OLD)
        self._tell("start Sluice's services")
        screen.busy("starting services", total=len(SERVICES))
        await self._start_all(partial(up.start_service, service) for service in SERVICES)
        for pool in self._fleet.pools:
            count = len(pool.nodes)
            self._tell(f"power on {count} {'machine' if count == 1 else 'machines'} of {pool.name}")
        shares = up.shares_of(self._fleet)
        screen.busy("starting machines", total=len(self._fleet.nodes))
        await self._start_all(
            (partial(up.start_machines, share) for share in shares), steps=map(len, shares)
        )

    async def play(self) -> None:
        """Carry the script out, until all nodes have what their policies want."""
        killing = asyncio.create_task(self._kill_midway(), name="kill midway")
        try:
            await self._play()
            await killing
        finally:
            killing.cancel()
            await asyncio.wait({killing})

    def versions(self) -> Mapping[str, str]:
        """Return the driver versions that targets stand for."""
        return self._observer.versions()

    def observed(self) -> Observed:
        return self._observer.observed()

    async def tell_restart(self, process: ManagedProcess, failure: ServerFailed) -> None:
        """Tell that a service has ended by itself and is started again, and keep its log."""
        number = self._up.processes.restarts[process.name]
        log = self._up.paths.log_of_ended(process.name, number)
        await asyncio.to_thread(log.write_text, process.child.log)
        how, _, _ = str(failure).partition("; its last lines")
        self._tell(f"{how}, and is started again; its log until then is {log}", "kubelet")

    async def follow(self) -> None:
        """Tell what others do, until cancelled."""
        while True:
            await self._look()
            await self._clock.sleep(POLL_INTERVAL)

    async def _play(self) -> None:
        last, since = Observed(), self._clock.monotonic()
        while True:
            seen = await self._look()
            turn = next_turn(
                self._script,
                self._progress,
                seen,
                now=self._clock.monotonic(),
                speed=self._up.speed,
            )
            self._progress = turn.progress
            for cue in turn.moot:
                if cue.moot_says:
                    self._tell(cue.moot_says)
            for cue in turn.due:
                await self._carry_out(cue, seen)
            if not turn.due and is_over(self._script, self._progress, seen):
                return
            now = self._clock.monotonic()
            if seen != last or holds(seen):
                last, since = seen, now
            if now - since > _STALLED_SECONDS:
                stands = f"{progress_text(seen)}: {_stalled(seen)}"
                raise Fatal(f"nothing has changed for {_STALLED_SECONDS:g} s: {stands}")
            if self._screen.is_silent:
                self._screen.busy(progress_text(seen))
            await self._clock.sleep(POLL_INTERVAL)

    async def _look(self) -> Observed:
        """Look at the fleet, and tell what others have done and which drivers have ended."""
        seen = self._observer.observed()
        for line in told_changes(self._settings, seen, ours=self._actions.unseen):
            self._tell(line, "person")
        settings = settings_of(seen)
        self._actions.unseen = still_unseen(self._actions.unseen, self._settings, settings)
        self._settings = settings
        await self._actions.mark_bad_drivers(seen)
        for each in seen.exits:
            await self._tell_exit(each)
        return seen

    async def _tell_exit(self, ended: DriverExit) -> None:
        """Tell once how a driver's container ended, with what it wrote last."""
        told = self._exits.setdefault(ended.pod, [])
        if ended.container_id in told:
            return
        told.append(ended.container_id)
        lines = await asyncio.to_thread(_last_lines, self._up, ended.container_id)
        is_new = lines != self._wrote.get(ended.pod)
        self._wrote[ended.pod] = lines
        versions = self._observer.versions()
        self._tell(exit_line(ended, versions, number=len(told), is_new=is_new), "kubelet")
        for line in lines if is_new else ():
            self._tell(f"  | {line}", "")

    async def _carry_out(self, cue: Cue, seen: Observed) -> None:
        if cue.title:
            self._screen.line(f"\n{cue.title}")
        for action in cue.do:
            task = asyncio.create_task(self._actions.carry_out(action, seen), name=cue.name)
            try:
                while not (await asyncio.wait({task}, timeout=POLL_INTERVAL))[0]:
                    await self._look()  # others act meanwhile
                await task
            finally:
                task.cancel()
                await asyncio.wait({task})

    @asynccontextmanager
    async def print_events(self, bus: Bus) -> AsyncGenerator[None]:
        """Print the events on the bus until the end of the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._print_new_events(bus), name="print events"),
                group.create_task(self._print_waits(), name="print waits"),
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _print_new_events(self, bus: Bus) -> None:
        cluster = bus.identity.cluster
        async with read_events(bus=bus, cluster=cluster, follow=True) as entries:
            async for entry in entries:
                if isinstance(entry, RecordedEvent):
                    self._observer.event_seen(entry.event)
                    for line in self._formatter.lines_for(entry.event):
                        self._screen.event(line)

    async def _print_waits(self) -> None:
        while True:
            await self._clock.sleep(POLL_INTERVAL)
            for line in self._formatter.overdue_lines(self._clock.now()):
                self._screen.event(line)

    async def _start_all(
        self, starts: Iterable[Callable[[], Awaitable[None]]], *, steps: Iterable[int] = ()
    ) -> None:
        limit = asyncio.Semaphore(_CONCURRENT_STARTS)
        started = list(starts)
        counted = list(steps) or [1] * len(started)

        async def start_limited(start: Callable[[], Awaitable[None]], count: int) -> None:
            async with limit:
                await start()
            for _ in range(count):
                self._screen.step()

        async with asyncio.TaskGroup() as group:
            for start, count in zip(started, counted, strict=True):
                group.create_task(start_limited(start, count), name="start")

    async def _kill_midway(self) -> None:
        """Kill the service or agent of `--kill` while a node is being upgraded."""
        if not self._kill:
            return
        while not (node := _upgrading(self._observer.observed())):
            await self._clock.sleep(POLL_INTERVAL)
        target = f"the {self._kill} agent of {node}" if self._kill in AGENT_KINDS else self._kill
        self._tell(f"kill -9 {target} while {node} is being upgraded; it is restarted")
        await self._up.kill(self._kill, node=node)

    def _tell(self, action: str, who: str = ADMINISTRATOR) -> None:
        self._screen.line(self._formatter.line(who, action, at=self._clock.now()))


def _upgrading(seen: Observed) -> str:
    """Return a node that is being moved from the first driver to another; empty: there is none."""
    for pool in seen.pools.values():
        if pool.status.version not in ("", OLD) and pool.status.in_flight:
            return next(iter(pool.status.in_flight.values())).node
    return ""


def progress_text(seen: Observed) -> str:
    """Return how far the rollouts are, and what nodes in flight do."""
    statuses = [pool.status for pool in seen.pools.values()]
    done = sum(status.counts.done for status in statuses)
    moving = [each.node for status in statuses for each in status.in_flight.values()]
    states = [(name, seen.nodes[name].state) for name in moving if name in seen.nodes]
    counted = Counter(state for _, state in states)
    shown = (
        [f"{name} {state}" for name, state in states]
        if len(states) <= _NAMED
        else [f"{count} {state}" for state, count in counted.items()]
    )
    halted = [
        f"{name} is halted"
        for name, pool in seen.pools.items()
        if pool.status.phase == RolloutPhase.HALTED
    ]
    held = holds(seen)
    return ", ".join([f"{done} of {len(seen.nodes)} nodes are done", *halted, *held, *shown])


def _stalled(seen: Observed) -> str:
    statuses = {name: pool.status for name, pool in seen.pools.items()}
    return msgspec.json.encode(statuses).decode()


def _last_lines(up: DemoEnvironment, container_id: str) -> list[str]:
    """Return what a driver's container wrote last, as `kubectl logs --tail` does."""
    return up.paths.container_log(container_id)[-_LOG_LINES:]
