"""A storm of sign-ins after the loss of nats-server, and what larger fleets would take."""

import math
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from bench.report import BenchReport
from bench.signin_cryptography import cryptography_seconds
from bench.signin_world import PARTS, Agents, Fleet, StormWorld, storm_world

TITLE = "2,000 agents with tokens sign in again after kill -9 of nats-server"
AWAY = 10.0
"""Seconds for which sign-in stays away after nats-server is back."""
ALL_BACK = 30.0
"""Seconds after the return of sign-in in which all agents shall be back."""
PACE = 0.7
"""Part of a core that sign-in may use in a storm."""
LARGER = {"1,500 nodes": 7_500, "10,000 nodes": 50_000}
FLEET = Fleet(nodes=400)

GRANTED: Final = 'answers_total{result="granted"}'


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """What one storm took."""

    seconds: float
    agents: Agents
    server_cpu: float
    client_cpu: float
    counted: dict[str, float]
    """How much each counter of sign-in grew."""

    @property
    def cpu(self) -> float:
        """CPU seconds of sign-in, server and agents."""
        return self.counted["cpu"] + self.server_cpu + self.client_cpu

    def per_sign_in(self, counter: str) -> float:
        """Return milliseconds of CPU time for each agent that was admitted."""
        return 1000 * self.counted[counter] / self.counted[GRANTED]


async def run(report: BenchReport) -> None:
    """Kill nats-server twice, and reload it once."""
    async with storm_world(FLEET) as world:
        present = await storm_with_sign_in(world)
        _print_storm(report, "with sign-in present", present)
        without = await storm_without_sign_in(world)
        _print_storm(report, f"with sign-in away for {AWAY:g} s", without)
        reloaded = await storm_by_reload(world)
        _print_storm(report, "after a reload of nats-server", reloaded)
        for name, storm in {"present": present, "away": without, "reload": reloaded}.items():
            least = FLEET.spread + storm.cpu / (os.cpu_count() or 1)
            ratio = storm.seconds / least
            report.at_most(f"all back, {name}, in times of spread and CPU", ratio, 6.0, "x")
            report.at_most(f"all back, {name}", storm.seconds, ALL_BACK, "s")
            report.at_most(f"closed for good, {name}", storm.agents.closed, 0, "")
        own = sum(present.per_sign_in(_cpu(part)) for part in PARTS)
        bare = 1000 * cryptography_seconds()
        report.figure("cryptography of one sign-in", bare, "ms")
        report.at_most("an answer, in times of its cryptography", own / bare, 6.0, "x")
        _print_larger(report, present)


async def storm_with_sign_in(world: StormWorld) -> Storm:
    """Kill nats-server and start it again; sign-in connects again as everyone."""

    async def lose() -> float:
        await world.nats.kill()
        await world.nats.start()
        return time.monotonic()

    return await _storm(world, lose, killed=True)


async def storm_without_sign_in(world: StormWorld) -> Storm:
    """The same, but sign-in is started only later; the storm counts from its return."""

    async def lose() -> float:
        await world.kill_sign_in()
        await world.nats.kill()
        await world.nats.start()
        began = time.monotonic()
        while time.monotonic() < began + AWAY:
            await world.agents()
        await world.start_sign_in()
        return time.monotonic()

    return await _storm(world, lose, killed=True)


async def storm_by_reload(world: StormWorld) -> Storm:
    """Reload nats-server with an unchanged configuration, which cuts every session of sign-in."""

    async def reload() -> float:
        began = time.monotonic()
        await world.nats.reload(world.config)
        return began

    return await _storm(world, reload, killed=False)


async def _storm(world: StormWorld, lose: Callable[[], Awaitable[float]], *, killed: bool) -> Storm:
    before, counted = await world.until_all_back(), await world.counters()
    server = world.server_cpu()
    began = await lose()
    after = await world.until_all_back(downs=before.downs + world.fleet.agents)
    now = await world.counters()
    return Storm(
        seconds=after.last_up - began,
        agents=after,
        server_cpu=world.server_cpu() - (0.0 if killed else server),
        client_cpu=after.cpu - before.cpu,
        counted={name: value - counted.get(name, 0.0) for name, value in now.items()},
    )


def _cpu(part: str) -> str:
    return f'cpu_seconds_total{{part="{part}"}}'


def _print_storm(report: BenchReport, title: str, storm: Storm) -> None:
    granted = storm.counted[GRANTED]
    refused = sum(
        value
        for name, value in storm.counted.items()
        if name.startswith("answers_total") and name != GRANTED
    )
    dropped = storm.counted.get('dropped_total{reason="old"}', 0.0)
    note = f"{granted:.0f} granted, {refused:.0f} refused, {dropped:.0f} too old"
    report.figure(f"{title}: the last is back", storm.seconds, "s", note=note)
    parts = ", ".join(f"{part} {storm.per_sign_in(_cpu(part)):.2f}" for part in PARTS)
    report.figure("  sign-in, CPU per sign-in", storm.per_sign_in("cpu"), "ms", note=parts)
    report.figure("  nats-server", 1000 * storm.server_cpu / granted, "ms")
    report.figure("  agent", 1000 * storm.client_cpu / granted, "ms")


def _print_larger(report: BenchReport, storm: Storm) -> None:
    """Print what larger fleets take, by the CPU time of one sign-in."""
    for title, identities in LARGER.items():
        ours = identities * storm.per_sign_in("cpu") / 1000
        servers = identities * 1000 * storm.server_cpu / storm.counted[GRANTED] / 1000
        needed = max(2, math.ceil(ours / (PACE * ALL_BACK)))
        report.figure(f"{title}: sign-in", ours, "cpu s", note=f"{needed} replicas")
        report.figure(f"{title}: nats-server", servers, "cpu s")
