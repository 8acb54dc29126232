"""Stories of the scheduler whose writes, journals and events are audited at their end."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from demo.verdict import DriverlessNodes, with_report_delay
from libs.audit import AuditJournal, AuditResult, judge
from libs.contracts import subjects
from libs.contracts.message import decode
from libs.contracts.reports import Report
from libs.testing.bus import TraceRecord
from tests.component.scheduler.world import POOL, World, play
from tests.support import played_by

MAX_UNAVAILABLE = "25%"
"""What the tests' policy leaves to its default."""


class Auditor:
    """Reads from the start what no revision shows; `world` is any one with the agents' journals."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._driverless = DriverlessNodes(pool=POOL, max_unavailable=MAX_UNAVAILABLE)
        world.bus.add_tracer(self._observe)

    def _observe(self, record: TraceRecord) -> None:
        subject = subjects.parse(record.subject) if record.action == "store" else None
        if isinstance(subject, subjects.State):
            self._driverless.observe(decode(Report, record.data), at=record.time)

    async def journal(self) -> AuditJournal:
        """Return all records so far."""
        world = self._world
        revisions = tuple(world.server.journal.revisions)
        return AuditJournal(
            revisions=revisions,
            entries=tuple(entry for entries in world.journals.values() for entry in entries),
            events=tuple(await world.bus_events()),
            pools=with_report_delay(self._driverless.pool_facts, revisions),
        )

    async def judge(self, *, faults: bool) -> AuditResult:
        await self._world.sleep(30)  # the last reports arrive
        return judge(await self.journal(), faults=faults)


def problems(result: AuditResult, *, faults: bool) -> list[str]:
    """Return what the audit found, and which invariants it could not judge."""
    found = [f"{each.invariant}: {each.node}: {each.message}" for each in result.violations]
    missing = {name: why for name, why in result.not_judged.items() if name != "I10" or not faults}
    return [*found, *(f"{name} was not judged: {why}" for name, why in missing.items())]


def play_audited(
    story: Callable[[World], Coroutine[Any, Any, None]], *, faults: bool = False
) -> None:
    """Run a story; fail if the audit finds anything in it, or a machine recorded an incident."""

    async def audited(world: World) -> None:
        auditor = Auditor(world)
        await story(world)
        found = problems(await auditor.judge(faults=faults), faults=faults)
        found += [str(each) for machine in world.machines.values() for each in machine.incidents]
        assert not found, "\n".join(found)

    play(audited)


in_audited_world = played_by(play_audited)
in_audited_world_with_faults = played_by(partial(play_audited, faults=True))
"""Of I10 only repeats are judged then: it limits the writes of an undisturbed run."""
