"""Play a seed on the whole system and judge it: by the audit, the machines, and the end state.

When all faults are over, a person resolves the waits that only a person can resolve. All failures
are reported with a timeline.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

import msgspec

from demo.verdict import with_report_delay
from libs.audit import AuditJournal, judge
from libs.bus.recreated import ALL_REPEATED
from libs.contracts.events import WaitEvent
from libs.contracts.journal import Entry, Revision
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL, UpgradeState
from libs.contracts.paths import RECORD
from services.scheduler import resources
from tests.component.campaign.actions import ALL_ACTIONS
from tests.component.campaign.admin import NEW, OLD, POOL
from tests.component.campaign.fault_actions import LOSE_REPORTS
from tests.component.campaign.gate_answers import unjustified_answers
from tests.component.campaign.mig_actions import (
    division_problems,
    is_for_another_config,
    is_settled,
)
from tests.component.campaign.observers import BusObserver, FaultCounter
from tests.component.campaign.recovery import FOR_PEOPLE, decode_record, record_of, recover
from tests.component.campaign.scenario import ACTS_UNTIL, CampaignScenario
from tests.component.campaign.timeline import node_changes
from tests.component.campaign.world import CampaignWorld, run_world
from tests.component.pods_kept import deleted_pods

FAULTS_END_AT: Final = ACTS_UNTIL + 10.0
FINISH_WITHIN: Final = 4500.0
"""Seconds to reach the end or waits for people; a driver may take half an hour, twice."""
ROUNDS: Final = 8
"""The maximum number of rounds in which a person resolves waits."""
AT_REST: Final = 20.0
"""Seconds without a new wait event."""
LATE: Final = 90.0
"""Seconds after which a wait with an expected end is overdue."""
LINES: Final = 120


class SeedResult(msgspec.Struct, kw_only=True):
    scenario: CampaignScenario
    failures: tuple[str, ...]
    """The failures, each with its kind before the first colon."""
    journal: bytes
    """All revisions of the API server and entries of the agents."""
    lines: list[str]
    took_effect: dict[str, int]
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
        self._observer = BusObserver(pool=POOL, max_unavailable=scenario.max_unavailable)
        self._fault_counter = FaultCounter()
        world.add_bus_listener(self._observer.observe)
        world.add_bus_listener(self._fault_counter.count_bus_fault)

    async def run(self) -> SeedResult:
        world, scenario = self._world, self._scenario
        await world.install()
        await world.sleep(1)
        self._fault_counter.inject(world.server, scenario.api_faults)
        for name in scenario.nodes:
            world.add_machine(name)
        await self._apply_policy(OLD)
        world.keep_running()
        await self._run_actions()
        if not scenario.calm:
            await self._sleep_until(FAULTS_END_AT)
            self._log("--- all faults are over")
            await world.end_faults()
        if any(action.kind == LOSE_REPORTS for action in scenario.actions):
            await world.sleep(ALL_REPEATED)  # a leader that began meanwhile has to wait for them
        ended = await self._wait_for_end()
        return await self._judge(ended)

    async def _run_actions(self) -> None:
        """Run actions, workloads and the patch, each at its time."""
        patched_at, patched = self._scenario.patched_at, False
        for action in sorted(self._scenario.actions, key=lambda action: (action.at, str(action))):
            if action.at >= patched_at and not patched:
                await self._patch()
                patched = True
            await self._sleep_until(action.at)
            happened = await ALL_ACTIONS[action.kind].perform(self._world, action)
            self._log(
                f"--- {action}" if happened else f"--- {action}: there is no object to act on"
            )
            if happened:
                self._fault_counter.count_action(action.kind)
        if not patched:
            await self._patch()

    async def _patch(self) -> None:
        patched_at = self._scenario.patched_at
        await self._sleep_until(patched_at - 15.0)
        for workload in self._scenario.workloads:
            await self._world.create_service(workload.name, workload.node, gpus=workload.gpus)
        await self._sleep_until(patched_at)
        await self._apply_policy(NEW)

    async def _apply_policy(self, version: str) -> None:
        scenario = self._scenario
        self._log(f"--- a person sets driver version {version}")
        await self._world.apply_policy(
            version, maxUnavailable=scenario.max_unavailable, maxParallelUpgrades=scenario.parallel
        )

    async def _wait_for_end(self) -> bool:
        world = self._world
        for _ in range(ROUNDS):
            if not await world.until(self._ended_or_for_people, within=FINISH_WITHIN, every=5.0):
                break
            if await self._ended():
                return True
            for done in await recover(world, self._waits()):
                self._log(f"--- a person {done}")
            await world.sleep(AT_REST)
        return await self._ended()

    async def _ended(self) -> bool:
        """Report whether everything is in place, with evidence of the boot of each machine.

        The API server learns of a boot late; until then a node looks done that has no driver.
        """
        if not await self._world.is_rolled_out():
            return False
        return all(map(self._is_in_place, await self._nodes()))

    def _is_in_place(self, node: resources.Node) -> bool:
        machine, record = self._world.nodes[node.metadata.name].machine, record_of(node)
        if record is None or record.evidence is None or not machine.is_on:
            return False
        return record.evidence.boot_id == machine.boot_id and is_settled(node)

    async def _nodes(self) -> list[resources.Node]:
        return [await self._world.kube.get(resources.NODES, name) for name in self._world.nodes]

    async def _ended_or_for_people(self) -> bool:
        """Report whether every node is in place, or waits for a person."""
        if await self._ended():
            return True
        waits, now = self._waits(), self._world.sim.clock.now()
        at_rest = all(now - at > AT_REST for at, _ in self._observer.waits.values())
        for_people = (
            wait.code in FOR_PEOPLE or is_for_another_config(wait) for wait in waits.values()
        )
        return bool(waits) and at_rest and all(for_people)

    def _waits(self) -> dict[str, WaitEvent]:
        waits = {name: self._observer.wait_of(name) for name in self._world.nodes}
        return {name: wait for name, wait in waits.items() if wait is not None}

    async def _sleep_until(self, time: float) -> None:
        await self._world.sleep(max(0.0, self._began + time - self._world.sim.clock.now()))

    def _log(self, text: str) -> None:
        self._lines.append((self._world.sim.clock.now(), text))

    async def _judge(self, ended: bool) -> SeedResult:
        world, calm = self._world, self._scenario.calm
        # Let the last reports arrive.
        await world.sleep(5 if calm else 30)
        revisions, entries, events = world.revisions(), await world.entries(), await world.events()
        journal = AuditJournal(
            revisions=revisions,
            entries=entries,
            events=events,
            pools=with_report_delay(self._observer.driverless.pool_facts, revisions),
            lost_journals=tuple(world.lost_journals),
            clocks_ahead={
                entry.node_uid: world.most_wrong[entry.node]
                for entry in entries
                if entry.node in world.most_wrong
            },
        )
        failures = self._audit_failures(journal)
        for node in world.nodes.values():
            failures += [f"machine: {incident}" for incident in node.machine.incidents]
        ended_by_themselves = [
            failure for node in world.nodes.values() for failure in node.failures
        ]
        failures += [f"ended: {failure}" for failure in (*world.failures, *ended_by_themselves)]
        for role in world.roles:
            failures += [f"unguarded: {request}" for request in role.transport.unguarded]
        failures += [f"gate: {text}" for text in self._unjustified_answers(entries)]
        failures += self._given_up_evictions(revisions)
        failures += [f"lost: {text}" for text in deleted_pods(revisions)]
        if ended:
            failures += [f"proof: {text}" async for text in self._without_evidence()]
            for node in await self._nodes():
                divided = world.nodes[node.metadata.name].machine.divided
                failures += [f"mig: {text}" for text in division_problems(node, divided)]
        else:
            failures += [f"liveness: {await self._describe_nodes()}", *self._overdue_waits()]
        timeline = [*self._lines, *((event.at, event.message) for event in events)]
        timeline += node_changes(revisions)
        for entry in entries:
            op = f"{entry.command} {entry.token}.{entry.op} {entry.phase} {entry.detail}".rstrip()
            timeline.append((entry.time, f"{entry.node}/{entry.component}: {op}"))
        timeline.sort(key=lambda line: line[0])
        return SeedResult(
            scenario=self._scenario,
            failures=tuple(failures),
            journal=msgspec.json.encode((revisions, entries)),
            lines=[f"{time - self._began:9.2f} {text}" for time, text in timeline],
            took_effect=self._fault_counter.counts(),
        )

    def _unjustified_answers(self, entries: Iterable[Entry]) -> Iterator[str]:
        world = self._world
        for name, sim_node in world.nodes.items():
            if name in world.most_wrong:
                continue  # times alone tell whether a command came before an answer
            uids = {each.node_uid for each in entries if each.node == name}
            for answer, reason in unjustified_answers(
                sim_node.machine.gate_answers,
                commands=self._observer.driver_commands.get(name, ()),
                entries=[entry for entry in entries if entry.node == name],
                lost_journals=[loss for loss in world.lost_journals if loss.node_uid in uids],
            ):
                yield f"{answer.at - self._began:.1f} s, {name}: {reason}"

    def _audit_failures(self, journal: AuditJournal) -> list[str]:
        calm = self._scenario.calm
        result = judge(journal, faults=not calm)
        failures = [
            f"{found.invariant}: {found.time - self._began:.1f} s, {found.node}: {found.message}"
            for found in result.violations
        ]
        for invariant, sources in sorted(result.not_judged.items()):
            if not self._world.most_wrong and (calm or invariant != "I10"):
                failures.append(f"unjudged: {invariant}: {sources}")
        return failures

    def _given_up_evictions(self, revisions: Iterable[Revision]) -> Iterator[str]:
        """Report failures for an eviction: every budget allows it long before the limit."""
        for revision in revisions:
            text = revision.changed.get(RECORD, (None, None))[1]
            record = decode_record(text)
            failed = record is not None and record.state == UpgradeState.UPGRADE_FAILED
            if record and failed and record.cause.startswith("eviction"):
                at = revision.time - self._began
                yield f"eviction: {at:.1f} s, {revision.name} failed: {record.cause}"

    async def _without_evidence(self) -> AsyncGenerator[str]:
        """Report nodes that are done without matching evidence."""
        world = self._world
        for name, sim_node in world.nodes.items():
            record = record_of(await world.kube.get(resources.NODES, name))
            evidence = record.evidence if record is not None else None
            driver = sim_node.machine.driver
            if evidence is None or not evidence.passed:
                yield f"{name}: no passed evidence"
            elif (evidence.label, evidence.boot_id) != (world.label, sim_node.machine.boot_id):
                yield f"{name}: the evidence is for {evidence.label} in boot {evidence.boot_id}"
            elif driver is None or (driver.label, driver.version) != (world.label, world.version):
                yield f"{name}: the kernel has {driver}"

    def _overdue_waits(self) -> Iterator[str]:
        """Report waits past their expected end."""
        now = self._world.sim.clock.now()
        for name, wait in self._waits().items():
            if wait.until is not None and now > wait.until + LATE:
                expected = f"{wait.until - self._began:.0f} s"
                yield f"until: {name}: {wait.code} until {expected}, which is over"

    async def _describe_nodes(self) -> str:
        """Describe the state of each node and its last wait."""
        texts: list[str] = []
        waits = {name: event.message for name, (_, event) in self._observer.waits.items()}
        for name in self._world.nodes:
            labels = (await self._world.kube.get(resources.NODES, name)).metadata.labels
            state, driver = labels.get(STATE_LABEL, "no state"), labels.get(DRIVER_LABEL)
            texts.append(f"{name} is {state} with {driver}; {waits.get(name)}")
        rollout = await self._world.rollout()
        return f"{rollout.status.phase if rollout else 'no rollout'}; {'; '.join(texts)}"


def seed_report(result: SeedResult) -> str:
    """Return the scenario, the timeline and the failures."""
    scenario = result.scenario
    workloads = ", ".join(workload.node for workload in scenario.workloads)
    effects = ", ".join(f"{what} {count}" for what, count in result.took_effect.items())
    lines = [
        f"seed {scenario.seed}: {', '.join(scenario.nodes)}; patched at {scenario.patched_at} s",
        f"maxUnavailable {scenario.max_unavailable}, maxParallelUpgrades {scenario.parallel}",
        f"workloads on {workloads or 'no node'}",
        f"bus {scenario.bus}",
        f"api {scenario.api_faults}",
        *(f"override {override}" for override in scenario.overrides),
        f"took effect: {effects}",
    ]
    timeline = result.lines
    if len(timeline) > LINES:
        middle = LINES // 2
        timeline = [*timeline[:middle], f"… {len(timeline) - LINES} lines …", *timeline[-middle:]]
    return "\n".join([*lines, *timeline, *(f"WRONG: {failure}" for failure in result.failures)])
