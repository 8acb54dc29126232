"""The audit of an upgrade on real nodes: what the API server, the agents and the bus recorded."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from demo.verdict import DriverlessNodes, events_of, observe_reports, with_report_delay
from libs.audit import AuditJournal, judge
from libs.bus.journal import FileJournal
from libs.contracts.identities import COMPONENTS, Writer
from libs.contracts.journal import Entry
from libs.policy.render.agents import STATE_DIR
from libs.runtime.clock import SystemClock
from libs.testing.image.driver_settings import DriverSettings
from libs.testing.realnodes.node import Node
from tests.component.real_upgrade.audit_checks import AuditLogSummary, read_audit_log
from tests.system.upgrade.world import NODES, OLD, POOL, World

FIRST_RUNS_WITHIN: Final = 240.0


@asynccontextmanager
async def observe_driverless(world: World) -> AsyncGenerator[DriverlessNodes]:
    """Collect what agents report of their machines and no revision shows."""
    observer = DriverlessNodes(pool=POOL, max_unavailable=NODES)
    async with (
        world.installation.bus(Writer.VALIDATOR_CLUSTER) as bus,
        observe_reports(observer, bus=bus, clock=SystemClock()),
    ):
        yield observer


@asynccontextmanager
async def audited(world: World) -> AsyncGenerator[None]:
    """Run the first driver and users' pods on all nodes; audit everything at the end."""
    # The vendor's container unloads its modules when it ends, unless they are in use: both ways.
    world.machines[0].set_driver(OLD, DriverSettings(leaves_modules=True))
    await world.apply_policy(OLD)
    async with observe_driverless(world) as observer:
        await world.until_all_run(OLD, within=FIRST_RUNS_WITHIN)
        await world.run_service()
        yield
        log = await assert_audit_passes(world, observer)
        assert ("sluice-scheduler", "", "pods/eviction", "create") in log.requests


async def assert_audit_passes(world: World, observer: DriverlessNodes) -> AuditLogSummary:
    """Audit the records of server, agents and services; they rest meanwhile."""
    async with world.installation.bus(Writer.CTL) as bus:
        events = await events_of(bus)
    log = await asyncio.to_thread(read_audit_log, world.ground.kube.audit_log)
    entries = [entry for node in world.ground.nodes for entry in await entries_of(node)]
    journal = AuditJournal(
        revisions=log.revisions,
        entries=tuple(entries),
        events=events,
        pools=with_report_delay(observer.pool_facts, log.revisions),
    )
    result = await asyncio.to_thread(judge, journal, faults=True)
    lines = [f"{each.invariant} {each.node}: {each.message}" for each in result.violations]
    lines += [f"{each.node.name}: {line}" for each in world.machines for line in each.incidents()]
    assert not lines, "\n".join(lines)
    assert result.not_judged.keys() <= {"I10"}, result.not_judged
    assert log.forbidden == {}, log.forbidden
    return log


async def entries_of(node: Node) -> list[Entry]:
    """Return the entries of a node's agents, which keep their journals open meanwhile."""
    entries: list[Entry] = []
    state = node.folder / "disk" / STATE_DIR.strip("/").replace("/", "-")
    with tempfile.TemporaryDirectory(prefix="sluice-journals-") as folder:
        for component in COMPONENTS:
            journal = state / component.value / "journal"
            if journal.exists():
                copy = Path(folder) / component.value
                await asyncio.to_thread(shutil.copy, journal, copy)
                entries += await FileJournal(copy, run=asyncio.to_thread).open()
    return entries
