"""Reduce a failing scenario to a minimal one that fails with the same kind, and print its run.

Greedy: leave out whatever can be left out.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.testing.stage import StageNodeSpec
from tests.component.rollout.simulation.effect_faults import EffectFaultRates
from tests.component.rollout.simulation.runner import Decide, SimulationResult, run_scenario
from tests.component.rollout.simulation.scenario import START, Scenario

FIRST_LINES, LAST_LINES = 90, 60
"""Log lines to print of a long run: from its beginning, and from its end."""


def shrink_failure(
    failure: SimulationResult, decide_all: Decide | None = None, *, tries: int = 400
) -> SimulationResult:
    """Return a smaller scenario's failure, or the given one; run at most `tries` scenarios."""
    if failure.failure is None:
        return failure
    shrinker = _Shrinker(failure, failure.failure.kind, decide_all, tries)
    shrinker.shrink()
    return shrinker.best


class _Shrinker:
    def __init__(
        self, best: SimulationResult, kind: str, decide_all: Decide | None, tries: int
    ) -> None:
        self.best = best
        self._kind = kind
        self._decide_all = decide_all
        self._tries = tries

    def shrink(self) -> None:
        # A result lists the faults that were applied; with them the rates are not needed.
        listed = self.best.effect_faults
        self._accept(
            replace(self.best.scenario, fault_rates=EffectFaultRates(), effect_faults=listed)
        )
        found = True
        while found and self._tries > 0:
            found = False
            for field in ("disturbances", "effect_faults", "nodes"):
                found |= self._shorten(field)
            while any(self._accept(simpler) for simpler in _simpler(self.best.scenario)):
                found = True

    def _accept(self, scenario: Scenario) -> bool:
        """Run the scenario; keep it if it fails in the same way."""
        if self._tries <= 0 or scenario == self.best.scenario:
            return False
        self._tries -= 1
        result = run_scenario(scenario, self._decide_all)
        if result.failure is None or result.failure.kind != self._kind:
            return False
        self.best = result
        return True

    def _shorten(self, field: str) -> bool:
        """Leave out halves of a list, then quarters, then single items."""
        shortened = False
        items = getattr(self.best.scenario, field) or ()
        size = max(1, len(items) // 2)
        while size:
            index = 0
            while index < len(items):
                remaining = (*items[:index], *items[index + size :])
                empty_fleet = field == "nodes" and not remaining
                if not empty_fleet and self._accept(_with(self.best.scenario, field, remaining)):
                    items, shortened = remaining, True
                else:
                    index += size
            size //= 2
        return shortened


def _with(scenario: Scenario, field: str, items: tuple[object, ...]) -> Scenario:
    changed = replace(scenario, **{field: items})
    if field != "nodes":
        return changed
    names = {"", *(spec.name for spec in changed.nodes)}
    remaining = tuple(
        disturbance for disturbance in changed.disturbances if disturbance.node in names
    )
    return replace(changed, disturbances=remaining)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with one property each removed."""
    for change in ({"failure_prone": False}, {"deposed_seconds": 0.0},
                   {"never_loads": frozenset[str]()},
                   {"never_validates": frozenset[str]()}):  # fmt: skip
        yield replace(scenario, **change)
    for index, spec in enumerate(scenario.nodes):
        for simpler in _simpler_node(spec):
            yield replace(
                scenario, nodes=(*scenario.nodes[:index], simpler, *scenario.nodes[index + 1 :])
            )
    used = {spec.pool for spec in scenario.nodes}
    yield replace(scenario, pools=tuple(pool for pool in scenario.pools if pool.key in used))


def _simpler_node(spec: StageNodeSpec) -> Iterator[StageNodeSpec]:
    for index in range(len(spec.tenants)):
        yield replace(spec, tenants=(*spec.tenants[:index], *spec.tenants[index + 1 :]))
    yield replace(spec, cordoned_by="")
    yield replace(spec, obstacles=())
    yield replace(spec, host_processes=0)
    yield replace(spec, upgrade_last=False)
    yield replace(spec, variant="u24")


def failure_report(result: SimulationResult) -> str:
    wrong = result.failure
    end = result.stage.now if wrong is None or wrong.at is None else wrong.at
    log = [f"{time - START:9.2f} {text}" for time, text in result.stage.log_lines if time <= end]
    left_out = len(log) - FIRST_LINES - LAST_LINES
    if left_out > 0:
        log[FIRST_LINES:-LAST_LINES] = [f"          … {left_out} lines …"]
    last = f"{end - START:9.2f} WRONG: {wrong or 'nothing'}"
    return "\n".join([*_scenario_lines(result.scenario), *log, last])


def _scenario_lines(scenario: Scenario) -> list[str]:
    lines = [f"seed {scenario.seed}"]
    for pool in scenario.pools:
        up = pool.upgrade
        lines.append(
            f"pool {pool.key} ({pool.method}): target {pool.target}, maxUnavailable "
            f"{up.max_unavailable}, maxParallel {up.max_parallel_upgrades}, threshold "
            f"{pool.strategy.failure_threshold}, retries {pool.strategy.retries}, "
            f"onJobTimeout {pool.strategy.on_job_timeout}, onEvictionTimeout "
            f"{pool.strategy.on_eviction_timeout}, cordoned {pool.strategy.cordoned_nodes}, "
            f"jobs {up.wait_for_completion.pod_selector!r} "
            f"{up.wait_for_completion.timeout_seconds} s, eviction "
            f"{up.pod_deletion.timeout_seconds} s, drain {up.drain.enable}"
        )
    for spec in scenario.nodes:
        tenants = ", ".join(str(tenant) for tenant in spec.tenants)
        cordon = f", cordoned by {spec.cordoned_by}" if spec.cordoned_by else ""
        lines.append(
            f"node {spec.name} in pool {spec.pool or 'none'} ({spec.variant}): runs "
            f"{spec.target or 'nothing'}{cordon}; {tenants}"
        )
    if scenario.never_loads or scenario.never_validates:
        lines.append(
            f"never load: {set(scenario.never_loads)}; "
            f"never validate: {set(scenario.never_validates)}"
        )
    lines += [f"disturbance {each}" for each in scenario.disturbances]
    lines += [f"effect fault {each}" for each in scenario.effect_faults or ()]
    lines.append(
        f"{scenario.fault_rates}, decision delay {scenario.decision_delay} s, a deposed leader "
        f"decides for {scenario.deposed_seconds} s, failure-prone {scenario.failure_prone}"
    )
    return lines
