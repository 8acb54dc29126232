"""Reduce a failing scenario to a minimal one that fails with the same kind.

Greedy: leave out whatever can be left out.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from libs.testing.stage import StageNodeSpec
from tests.component.rollout.simulation.effect_faults import EffectFaultRates
from tests.component.rollout.simulation.runner import Decide, SimulationResult, run_scenario
from tests.component.rollout.simulation.scenario import Scenario


def shrink_failure(
    failure: SimulationResult, decide_all: Decide | None = None, *, tries: int = 400
) -> SimulationResult:
    """Return a smaller scenario's failure, or the given one; run at most `tries` scenarios."""
    if failure.wrong is None:
        return failure
    shrinker = _Shrinker(failure, failure.wrong.kind, decide_all, tries)
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
        if result.wrong is None or result.wrong.kind != self._kind:
            return False
        self.best = result
        return True

    def _shorten(self, field: str) -> bool:
        """Leave out halves of a list, then quarters, then single items."""
        found = False
        items = getattr(self.best.scenario, field) or ()
        size = max(1, len(items) // 2)
        while size:
            at = 0
            while at < len(items):
                fewer = (*items[:at], *items[at + size :])
                empty_fleet = field == "nodes" and not fewer
                if not empty_fleet and self._accept(_with(self.best.scenario, field, fewer)):
                    items, found = fewer, True
                else:
                    at += size
            size //= 2
        return found


def _with(scenario: Scenario, field: str, items: tuple[object, ...]) -> Scenario:
    changed = replace(scenario, **{field: items})
    if field != "nodes":
        return changed
    names = {"", *(spec.name for spec in changed.nodes)}
    kept = tuple(each for each in changed.disturbances if each.node in names)
    return replace(changed, disturbances=kept)


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with one property each removed."""
    for change in ({"failure_prone": False}, {"deposed_seconds": 0.0},
                   {"never_loads": frozenset[str]()},
                   {"never_validates": frozenset[str]()}):  # fmt: skip
        yield replace(scenario, **change)
    for at, spec in enumerate(scenario.nodes):
        for simpler in _simpler_node(spec):
            yield replace(
                scenario, nodes=(*scenario.nodes[:at], simpler, *scenario.nodes[at + 1 :])
            )
    used = {spec.pool for spec in scenario.nodes}
    yield replace(scenario, pools=tuple(pool for pool in scenario.pools if pool.key in used))


def _simpler_node(spec: StageNodeSpec) -> Iterator[StageNodeSpec]:
    for at in range(len(spec.tenants)):
        yield replace(spec, tenants=(*spec.tenants[:at], *spec.tenants[at + 1 :]))
    yield replace(spec, cordoned_by="")
    yield replace(spec, obstacles=())
    yield replace(spec, host_processes=0)
    yield replace(spec, upgrade_last=False)
    yield replace(spec, variant="u24")
