"""A seed is played on the whole system and judged: by the audit, by the machines, by its end.

Faults befall it; then they are over, and a person clears away what only a person can. Stops at
nothing: all that is wrong is named, and told as a story in plain lines.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

import msgspec

from demo.driverless import with_report_delay
from libs.audit import AuditJournal, judge
from libs.contracts.events import WaitEvent
from libs.contracts.journal import Revision
from libs.contracts.node import DRIVER_LABEL, STATE_LABEL
from services.scheduler import resources
from tests.component.campaign import fault_actions
from tests.component.campaign.admin import POOL
from tests.component.campaign.bus_observer import BusObserver
from tests.component.campaign.fault_counts import FaultCounter
from tests.component.campaign.recovery import FOR_PEOPLE, record_of, recover
from tests.component.campaign.scenario import ACTS_UNTIL, NEW, OLD, CampaignScenario
from tests.component.campaign.world import CampaignWorld, run_world

HEALED_AT: Final = ACTS_UNTIL + 10.0
FINISH_WITHIN: Final = 4500.0
"""Seconds within which all comes to its end, or to what a person can end: a driver has half an hour
to start, and so has the next one."""
ROUNDS: Final = 8
"""So often at most a person clears away what only a person can."""
AT_REST: Final = 20.0
"""Seconds without any news of what the nodes wait for."""
LATE: Final = 90.0
"""Seconds after which a wait that said until when it lasts has not told the truth."""
LINES: Final = 120


class SeedFailure(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class SeedResult(msgspec.Struct, kw_only=True):
    """How a seed went."""

    scenario: CampaignScenario
    failures: tuple[SeedFailure, ...]
    journal: bytes
    """All that the API server and the agents have written down."""
    seconds: float
    """Of virtual time."""
    lines: list[str]
    """The story."""
    did: tuple[str, ...] = ()
    """What a person had to do at the end."""
    took_effect: dict[str, int] = {}
    """How often which trouble did."""


def run_seed(scenario: CampaignScenario) -> SeedResult:
    """All of it."""
    return run_world(
        lambda town: _SeedRun(town, scenario).tell(),
        seed=scenario.seed,
        model=scenario.model,
        faults=scenario.bus,
    )


class _SeedRun:
    def __init__(self, town: CampaignWorld, scenario: CampaignScenario) -> None:
        self._town = town
        self._scenario = scenario
        self._began = town.sim.clock.now()
        self._lines: list[tuple[float, str]] = []
        self._did: list[str] = []
        self._overheard = BusObserver(pool=POOL, max_unavailable=scenario.max_unavailable)
        self._tally = FaultCounter()
        town.add_bus_listener(self._overheard.observe)
        town.add_bus_listener(self._tally.count_bus_fault)

    async def tell(self) -> SeedResult:
        town, plan = self._town, self._scenario
        await town.install()
        await town.sleep(1)
        self._tally.inject(town.server, plan.api_faults)
        for name in plan.nodes:
            town.add_machine(name)
        await self._want(OLD)
        town.keep_running()
        await self._acts()
        if not plan.calm:
            await self._reach(HEALED_AT)
            self._say("--- all faults are over")
            await self._town.end_faults()
        ended = await self._come_to_rest()
        return await self._judged(ended)

    # What happens.

    async def _acts(self) -> None:
        """Faults, people, work and the patch, each at its time."""
        plan = self._scenario
        moments = [(act.at, str(act), act) for act in plan.acts]
        patched = False
        for at, said, act in sorted(moments, key=lambda one: one[:2]):
            if at >= plan.patched_at and not patched:
                await self._patch()
                patched = True
            await self._reach(at)
            happened = await fault_actions.perform(self._town, act)
            self._say(f"--- {said}" if happened else f"--- {said}: there is nothing of that kind")
            if happened:
                self._tally.count_action(act.what)
        if not patched:
            await self._patch()

    async def _patch(self) -> None:
        plan = self._scenario
        await self._reach(plan.patched_at - 15.0)
        for work in plan.workloads:
            await self._town.create_service(work.name, work.node, gpus=work.gpus)
        await self._reach(plan.patched_at)
        await self._want(NEW)

    async def _want(self, version: str) -> None:
        plan = self._scenario
        self._say(f"--- a person wants driver {version}")
        await self._town.apply_policy(
            version, maxUnavailable=plan.max_unavailable, maxParallelUpgrades=plan.parallel
        )

    async def _come_to_rest(self) -> bool:
        town = self._town
        for _ in range(ROUNDS):
            if await town.until(self._ended_or_for_people, within=FINISH_WITHIN, every=5.0) is None:
                break
            if await self._ended():
                return True
            for done in await recover(town, self._waits()):
                self._did.append(done)
                self._say(f"--- a person {done}")
            await town.sleep(AT_REST)
        return await self._ended()

    async def _ended(self) -> bool:
        """Everything is in place, and nobody has taken a proof away since."""
        if not await self._town.is_rolled_out():
            return False
        nodes = [await self._town.kube.get(resources.NODES, name) for name in self._town.nodes]
        return all((record := record_of(node)) and record.evidence for node in nodes)

    async def _ended_or_for_people(self) -> bool:
        """Every node is where it should be, or nothing but a person can get it there."""
        if await self._ended():
            return True
        waits = self._waits()
        now = self._town.sim.clock.now()
        at_rest = all(now - one.at > AT_REST for one in self._overheard.waits.values())
        return bool(waits) and at_rest and all(one.code in FOR_PEOPLE for one in waits.values())

    def _waits(self) -> dict[str, WaitEvent]:
        found = {name: self._overheard.wait_of(name) for name in self._town.nodes}
        return {name: wait for name, wait in found.items() if wait is not None}

    async def _reach(self, at: float) -> None:
        await self._town.sleep(max(0.0, self._began + at - self._town.sim.clock.now()))

    def _say(self, text: str) -> None:
        self._lines.append((self._town.sim.clock.now(), text))

    # What is to be said of it.

    async def _judged(self, ended: bool) -> SeedResult:
        town, plan = self._town, self._scenario
        # What was reported last is on its way.
        await town.sleep(5 if plan.calm else 30)
        revisions, entries, events = town.revisions(), await town.entries(), await town.events()
        journal = AuditJournal(
            revisions=revisions,
            entries=entries,
            events=events,
            pools=with_report_delay(self._overheard.driverless.pool_facts, revisions),
            lost_journals=tuple(town.forgot),
        )
        verdict = judge(journal, faults=not plan.calm)
        wrong = [
            SeedFailure(one.invariant, f"{one.time - self._began:.1f} s, {one.node}: {one.message}")
            for one in verdict.violations
        ]
        lacking = set(verdict.not_judged) - ({"I10"} if not plan.calm else set())
        wrong += [
            SeedFailure("unjudged", f"{one}: {verdict.not_judged[one]}") for one in sorted(lacking)
        ]
        wrong += [
            SeedFailure("machine", str(one))
            for each in town.nodes.values()
            for one in each.machine.incidents
        ]
        failures = [one for each in town.nodes.values() for one in each.failures]
        wrong += [SeedFailure("ended", one) for one in (*town.failures, *failures)]
        if not ended:
            wrong.append(SeedFailure("liveness", await self._standing()))
            wrong += self._untrue()
        else:
            wrong += [SeedFailure("proof", said) async for said in self._unproven()]
        told = [*self._lines, *((one.at, one.message) for one in events), *_writes(revisions)]
        told += [
            (one.time, f"{one.node}/{one.component}: {one.command} {one.token}.{one.op}"
             f" {one.phase} {one.detail}".rstrip())
            for one in entries
        ]  # fmt: skip
        told.sort(key=lambda one: one[0])
        return SeedResult(
            scenario=plan,
            failures=tuple(wrong),
            journal=msgspec.json.encode((revisions, entries)),
            seconds=town.sim.clock.monotonic(),
            lines=[f"{at - self._began:9.2f} {text}" for at, text in told],
            did=tuple(self._did),
            took_effect=self._tally.counts(),
        )

    async def _unproven(self) -> AsyncGenerator[str]:
        """Nodes that are called done, and whose evidence is not of what is there."""
        town = self._town
        for name, station in town.nodes.items():
            node = await town.kube.get(resources.NODES, name)
            record = record_of(node)
            found = record.evidence if record is not None else None
            driver = station.machine.driver
            if found is None or not found.passed:
                yield f"{name}: there is no evidence that passed"
            elif (found.label, found.boot_id) != (town.label, station.machine.boot_id):
                yield f"{name}: the evidence is of {found.label} in boot {found.boot_id}"
            elif driver is None or (driver.label, driver.version) != (town.label, town.version):
                yield f"{name}: in its kernel is {driver}"

    def _untrue(self) -> Iterator[SeedFailure]:
        """Waits that should be over, by what they say themselves."""
        now = self._town.sim.clock.now()
        for name, wait in self._waits().items():
            if wait.until is not None and now > wait.until + LATE:
                said = f"{wait.code} until {wait.until - self._began:.0f} s, and it is past that"
                yield SeedFailure("until", f"{name}: {said}")

    async def _standing(self) -> str:
        """Where each node stands, and what is said of why."""
        said: list[str] = []
        last = {name: one.message for name, one in self._overheard.waits.items()}
        for name in self._town.nodes:
            node = await self._town.kube.get(resources.NODES, name)
            labels = node.metadata.labels
            state = labels.get(STATE_LABEL, "no state")
            said.append(f"{name} is {state} with {labels.get(DRIVER_LABEL)}; {last.get(name)}")
        rollout = await self._town.rollout()
        return f"{rollout.status.phase if rollout else 'no rollout'}; {'; '.join(said)}"


def _writes(revisions: Iterable[Revision]) -> Iterator[tuple[float, str]]:
    """What changed on Nodes, of what a story is about."""
    for one in revisions:
        shown = [f"{path.rpartition('/')[2]}={value[1]}" for path, value in one.changed.items()
                 if one.kind == "Node" and _is_shown(path)]  # fmt: skip
        if shown and one.code < 300:
            yield one.time, f"{one.user.rpartition(':')[2]} writes {one.name}: {', '.join(shown)}"


def _is_shown(path: str) -> bool:
    words = (STATE_LABEL, DRIVER_LABEL, "unschedulable", "bootID")
    return path.endswith(words)


def seed_report(played: SeedResult) -> str:
    """What it was, what happened when, and what is wrong."""
    plan = played.scenario
    lines = [
        f"seed {plan.seed}: {', '.join(plan.nodes)}; patched at {plan.patched_at} s",
        f"maxUnavailable {plan.max_unavailable}, maxParallelUpgrades {plan.parallel}",
        f"work on {', '.join(one.node for one in plan.workloads) or 'no node'}",
        f"bus {plan.bus}",
        f"api {plan.api_faults}",
        *(f"odd {odd}" for odd in plan.overrides),
        f"took effect: {', '.join(f'{what} {n}' for what, n in played.took_effect.items())}",
    ]
    told = played.lines
    if len(told) > LINES:
        middle = LINES // 2
        told = [*told[:middle], f"… {len(told) - LINES} lines …", *told[-middle:]]
    return "\n".join([*lines, *told, *(f"WRONG: {one}" for one in played.failures)])
