"""From a story that went wrong to the shortest that goes wrong in the same way.

Greedy: whatever can be left out is left out, as long as the kind of the wrong stays the same.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from libs.forecast.stage import StageNodeSpec
from tests.component.rollout.simulation.runner import Decide, SimulationResult, run_scenario
from tests.component.rollout.simulation.scenario import Rates, Scenario

TRIES = 400


def shrink_failure(
    played: SimulationResult, decide: Decide | None = None, *, tries: int = TRIES
) -> SimulationResult:
    """It, or a shorter one; `tries` bounds the stories that are told on the way."""
    if played.wrong is None:
        return played
    best = played
    left = [tries]

    def better(scenario: Scenario) -> bool:
        nonlocal best
        if left[0] <= 0 or scenario == best.scenario:
            return False
        left[0] -= 1
        again = run_scenario(scenario, decide)
        same = again.wrong is not None and best.wrong and again.wrong.kind == best.wrong.kind
        if same:
            best = again
        return bool(same)

    better(replace(best.scenario, rates=Rates(), strikes=best.strikes))
    found = True
    while found and left[0] > 0:
        found = False
        for pick in _PICKS:
            found |= _less_of(better, pick, lambda: best)
        while any(better(simpler) for simpler in _simpler(best.scenario)):
            found = True
    return best


def _less_of(
    better: Callable[[Scenario], bool], name: str, best: Callable[[], SimulationResult]
) -> bool:
    """Leave out halves of a list, then quarters, then single ones."""
    found = False
    items = getattr(best().scenario, name) or ()
    size = max(1, len(items) // 2)
    while size:
        at = 0
        while at < len(items):
            fewer = (*items[:at], *items[at + size :])
            if _allowed(name, fewer) and better(_with(best().scenario, name, fewer)):
                items, found = fewer, True
            else:
                at += size
        size //= 2
    return found


_PICKS = ("acts", "strikes", "nodes")


def _allowed(name: str, items: tuple[object, ...]) -> bool:
    return name != "nodes" or bool(items)


def _with(scenario: Scenario, name: str, items: tuple[object, ...]) -> Scenario:
    made = replace(scenario, **{name: items})
    if name == "nodes":
        names = {plan.name for plan in made.nodes}
        kept = tuple(act for act in made.acts if not act.node or act.node in names)
        made = replace(made, acts=kept)
    return made


def _simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Every one is a little plainer."""
    for change in ({"rough": False}, {"zombie": 0.0}, {"bad": frozenset[str]()},
                   {"unsound": frozenset[str]()}):  # fmt: skip
        yield replace(scenario, **change)
    for at, plan in enumerate(scenario.nodes):
        for plainer in _plainer(plan):
            nodes = (*scenario.nodes[:at], plainer, *scenario.nodes[at + 1 :])
            yield replace(scenario, nodes=nodes)
    used = {plan.pool for plan in scenario.nodes}
    yield replace(scenario, pools=tuple(pool for pool in scenario.pools if pool.key in used))


def _plainer(plan: StageNodeSpec) -> Iterator[StageNodeSpec]:
    for at in range(len(plan.tenants)):
        yield replace(plan, tenants=(*plan.tenants[:at], *plan.tenants[at + 1 :]))
    yield replace(plan, cordoned_by="")
    yield replace(plan, obstacles=())
    yield replace(plan, host_processes=0)
    yield replace(plan, upgrade_last=False)
    yield replace(plan, variant="u24")
