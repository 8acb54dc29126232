"""Play a seed on the whole system and judge it: by the audit, the machines, and the end state.

Faults happen; when they are over, a person resolves what only a person can. All failures are
collected and reported with a timeline.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

import msgspec

from demo.verdict import with_report_delay
from libs.audit import AuditJournal, judge
from libs.contracts.events import WaitEvent
from libs.contracts.journal import Revision
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from services.scheduler import resources
from tests.component.campaign import fault_actions
from tests.component.campaign.admin import NEW, OLD, POOL
from tests.component.campaign.bus_observer import BusObserver
from tests.component.campaign.fault_counts import FaultCounter
from tests.component.campaign.recovery import FOR_PEOPLE, record_of, recover
from tests.component.campaign.scenario import ACTS_UNTIL, CampaignScenario
from tests.component.campaign.world import CampaignWorld, run_world

HEALED_AT: Final = ACTS_UNTIL + 10.0
FINISH_WITHIN: Final = 4500.0
"""Seconds to reach the end, or waits for people: a driver may take half an hour to start, twice."""
ROUNDS: Final = 8
"""Most rounds in which a person resolves waits."""
AT_REST: Final = 20.0
"""Seconds without a new wait event."""
LATE: Final = 90.0
"""Seconds after which a wait with an expected end is overdue."""
LINES: Final = 120


class SeedFailure(msgspec.Struct, frozen=True):
    """A violated promise."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class SeedResult(msgspec.Struct, kw_only=True):
    scenario: CampaignScenario
    failures: tuple[SeedFailure, ...]
    journal: bytes
    """All revisions of the API server and entries of the agents."""
    seconds: float
    lines: list[str]
    did: tuple[str, ...] = ()
    """What a person did at the end."""
    took_effect: dict[str, int] = {}
    """How often each kind of fault took effect."""


def run_seed(scenario: CampaignScenario) -> SeedResult:
    return run_world(
        lambda world: _SeedRun(world, scenario).run(),
        seed=scenario.seed,
        model=scenario.model,
        faults=scenario.bus,
    )


class _SeedRun:
    def __init__(self, world: CampaignWorld, scenario: CampaignScenario) -> None:
        self._world = world
        self._scenario = scenario
        self._began = world.sim.clock.now()
        self._lines: list[tuple[float, str]] = []
        self._recovered: list[str] = []
        self._observer = BusObserver(pool=POOL, max_unavailable=scenario.max_unavailable)
        self._fault_counter = FaultCounter()
        world.add_bus_listener(self._observer.observe)
        world.add_bus_listener(self._fault_counter.count_bus_fault)

    async def run(self) -> SeedResult:
        world, plan = self._world, self._scenario
        await world.install()
        await world.sleep(1)
        self._fault_counter.inject(world.server, plan.api_faults)
        for name in plan.nodes:
            world.add_machine(name)
        await self._apply_policy(OLD)
        world.keep_running()
        await self._run_actions()
        if not plan.calm:
            await self._reach(HEALED_AT)
            self._log("--- all faults are over")
            await self._world.end_faults()
        ended = await self._wait_for_end()
        return await self._judge(ended)

    async def _run_actions(self) -> None:
        """Run actions, workloads and the patch, each at its time."""
        plan = self._scenario
        scheduled = [(action.at, str(action), action) for action in plan.acts]
        patched = False
        for at, text, action in sorted(scheduled, key=lambda one: one[:2]):
            if at >= plan.patched_at and not patched:
                await self._patch()
                patched = True
            await self._reach(at)
            happened = await fault_actions.perform(self._world, action)
            self._log(f"--- {text}" if happened else f"--- {text}: there is nothing to act on")
            if happened:
                self._fault_counter.count_action(action.what)
        if not patched:
            await self._patch()

    async def _patch(self) -> None:
        plan = self._scenario
        await self._reach(plan.patched_at - 15.0)
        for work in plan.workloads:
            await self._world.create_service(work.name, work.node, gpus=work.gpus)
        await self._reach(plan.patched_at)
        await self._apply_policy(NEW)

    async def _apply_policy(self, version: str) -> None:
        plan = self._scenario
        self._log(f"--- a person wants driver {version}")
        await self._world.apply_policy(
            version, maxUnavailable=plan.max_unavailable, maxParallelUpgrades=plan.parallel
        )

    async def _wait_for_end(self) -> bool:
        world = self._world
        for _ in range(ROUNDS):
            if (
                await world.until(self._ended_or_for_people, within=FINISH_WITHIN, every=5.0)
                is None
            ):
                break
            if await self._ended():
                return True
            for done in await recover(world, self._waits()):
                self._recovered.append(done)
                self._log(f"--- a person {done}")
            await world.sleep(AT_REST)
        return await self._ended()

    async def _ended(self) -> bool:
        """Whether everything is in place, with evidence."""
        if not await self._world.is_rolled_out():
            return False
        nodes = [await self._world.kube.get(resources.NODES, name) for name in self._world.nodes]
        return all((record := record_of(node)) and record.evidence for node in nodes)

    async def _ended_or_for_people(self) -> bool:
        """Whether every node is in place, or waits for a person."""
        if await self._ended():
            return True
        waits = self._waits()
        now = self._world.sim.clock.now()
        at_rest = all(now - one.at > AT_REST for one in self._observer.waits.values())
        return bool(waits) and at_rest and all(one.code in FOR_PEOPLE for one in waits.values())

    def _waits(self) -> dict[str, WaitEvent]:
        found = {name: self._observer.wait_of(name) for name in self._world.nodes}
        return {name: wait for name, wait in found.items() if wait is not None}

    async def _reach(self, at: float) -> None:
        await self._world.sleep(max(0.0, self._began + at - self._world.sim.clock.now()))

    def _log(self, text: str) -> None:
        self._lines.append((self._world.sim.clock.now(), text))

    async def _judge(self, ended: bool) -> SeedResult:
        world, plan = self._world, self._scenario
        # Let the last reports arrive.
        await world.sleep(5 if plan.calm else 30)
        revisions, entries, events = world.revisions(), await world.entries(), await world.events()
        journal = AuditJournal(
            revisions=revisions,
            entries=entries,
            events=events,
            pools=with_report_delay(self._observer.driverless.pool_facts, revisions),
            lost_journals=tuple(world.forgot),
        )
        verdict = judge(journal, faults=not plan.calm)
        failures_found = [
            SeedFailure(one.invariant, f"{one.time - self._began:.1f} s, {one.node}: {one.message}")
            for one in verdict.violations
        ]
        missing = set(verdict.not_judged) - ({"I10"} if not plan.calm else set())
        failures_found += [
            SeedFailure("unjudged", f"{one}: {verdict.not_judged[one]}") for one in sorted(missing)
        ]
        failures_found += [
            SeedFailure("machine", str(one))
            for each in world.nodes.values()
            for one in each.machine.incidents
        ]
        failures = [one for each in world.nodes.values() for one in each.failures]
        failures_found += [SeedFailure("ended", one) for one in (*world.failures, *failures)]
        if not ended:
            failures_found.append(SeedFailure("liveness", await self._describe_nodes()))
            failures_found += self._overdue_waits()
        else:
            failures_found += [
                SeedFailure("proof", text) async for text in self._without_evidence()
            ]
        timeline = [*self._lines, *((one.at, one.message) for one in events), *_writes(revisions)]
        timeline += [
            (one.time, f"{one.node}/{one.component}: {one.command} {one.token}.{one.op}"
             f" {one.phase} {one.detail}".rstrip())
            for one in entries
        ]  # fmt: skip
        timeline.sort(key=lambda one: one[0])
        return SeedResult(
            scenario=plan,
            failures=tuple(failures_found),
            journal=msgspec.json.encode((revisions, entries)),
            seconds=world.sim.clock.monotonic(),
            lines=[f"{at - self._began:9.2f} {text}" for at, text in timeline],
            did=tuple(self._recovered),
            took_effect=self._fault_counter.counts(),
        )

    async def _without_evidence(self) -> AsyncGenerator[str]:
        """Report nodes that are done without matching evidence."""
        world = self._world
        for name, sim_node in world.nodes.items():
            node = await world.kube.get(resources.NODES, name)
            record = record_of(node)
            found = record.evidence if record is not None else None
            driver = sim_node.machine.driver
            if found is None or not found.passed:
                yield f"{name}: there is no evidence that passed"
            elif (found.label, found.boot_id) != (world.label, sim_node.machine.boot_id):
                yield f"{name}: the evidence is of {found.label} in boot {found.boot_id}"
            elif driver is None or (driver.label, driver.version) != (world.label, world.version):
                yield f"{name}: in its kernel is {driver}"

    def _overdue_waits(self) -> Iterator[SeedFailure]:
        """Report waits past their expected end."""
        now = self._world.sim.clock.now()
        for name, wait in self._waits().items():
            if wait.until is not None and now > wait.until + LATE:
                text = f"{wait.code} until {wait.until - self._began:.0f} s, and it is past that"
                yield SeedFailure("until", f"{name}: {text}")

    async def _describe_nodes(self) -> str:
        """Describe the state of each node and its last wait."""
        text: list[str] = []
        last = {name: one.message for name, one in self._observer.waits.items()}
        for name in self._world.nodes:
            node = await self._world.kube.get(resources.NODES, name)
            labels = node.metadata.labels
            state = labels.get(STATE_LABEL, "no state")
            text.append(f"{name} is {state} with {labels.get(DRIVER_LABEL)}; {last.get(name)}")
        rollout = await self._world.rollout()
        return f"{rollout.status.phase if rollout else 'no rollout'}; {'; '.join(text)}"


def _writes(revisions: Iterable[Revision]) -> Iterator[tuple[float, str]]:
    """Yield relevant changes of Nodes."""
    for one in revisions:
        changes = [f"{path.rpartition('/')[2]}={value[1]}" for path, value in one.changed.items()
                 if one.kind == "Node" and _is_relevant(path)]  # fmt: skip
        if changes and one.code < 300:
            yield one.time, f"{one.user.rpartition(':')[2]} writes {one.name}: {', '.join(changes)}"


def _is_relevant(path: str) -> bool:
    words = (STATE_LABEL, DRIVER_LABEL, "unschedulable", "bootID")
    return path.endswith(words)


def seed_report(result: SeedResult) -> str:
    """Return the scenario, the timeline and the failures."""
    plan = result.scenario
    lines = [
        f"seed {plan.seed}: {', '.join(plan.nodes)}; patched at {plan.patched_at} s",
        f"maxUnavailable {plan.max_unavailable}, maxParallelUpgrades {plan.parallel}",
        f"work on {', '.join(one.node for one in plan.workloads) or 'no node'}",
        f"bus {plan.bus}",
        f"api {plan.api_faults}",
        *(f"odd {odd}" for odd in plan.overrides),
        f"took effect: {', '.join(f'{what} {n}' for what, n in result.took_effect.items())}",
    ]
    timeline = result.lines
    if len(timeline) > LINES:
        middle = LINES // 2
        timeline = [*timeline[:middle], f"… {len(timeline) - LINES} lines …", *timeline[-middle:]]
    return "\n".join([*lines, *timeline, *(f"WRONG: {one}" for one in result.failures)])
