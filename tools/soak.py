"""Long randomised runs, on all processors: `python -m tools.soak WHAT --seeds N [--first M]`.

`engine`: each seed is a small rollout of the engine alone. `campaign`: each is the whole system,
with all its services. Both are judged by the audit. What goes wrong is told, once for each kind;
the exit status says whether anything did.

`explore --states N [--scene WORDS]`: every order of events from scenes that are too large for a
test, up to so many states each; a shortest story is told of what goes wrong.
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.component.campaign import campaign
from tests.component.campaign import scenario as campaigns
from tests.component.rollout.exploration.long_explorations import (
    LongExplorationResult,
    long_explorations,
)
from tests.component.rollout.simulation.report import failure_report
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import scenario
from tests.component.rollout.simulation.shrink import shrink_failure

SeedResult = tuple[int, str, int]
"""A seed, what is wrong with it, and how many nodes ended in place."""


class SoakTarget(NamedTuple):
    """What can be soaked."""

    run: Callable[[int], SeedResult]
    story: Callable[[int], str]


def _engine(seed: int) -> SeedResult:
    played = run_scenario(scenario(seed))
    wrong = played.wrong
    return seed, f"{wrong.kind}: {wrong.message}" if wrong is not None else "", played.done


def _campaign(seed: int) -> SeedResult:
    try:
        played = campaign.run_seed(campaigns.scenario(seed))
    except Exception as error:  # noqa: BLE001  (the others are played all the same)
        return seed, f"crash {type(error).__name__}: {error}", 0
    first = played.failures[0] if played.failures else None
    return seed, str(first or ""), 0 if first else len(played.scenario.nodes)


def _engines_story(seed: int) -> str:
    return failure_report(shrink_failure(run_scenario(scenario(seed))))


def _campaigns_story(seed: int) -> str:
    return campaign.seed_report(campaign.run_seed(campaigns.scenario(seed)))


PARTS: Final = {
    "engine": SoakTarget(_engine, _engines_story),
    "campaign": SoakTarget(_campaign, _campaigns_story),
}


def explored(scene: tuple[str, int]) -> tuple[str, LongExplorationResult]:
    """One scene, up to so many states."""
    name, most = scene
    return name, long_explorations()[name](most)


def explorations(words: str, most: int) -> int:
    """Those whose name has these words; the exit status."""
    names = [name for name in long_explorations() if words in name]
    states = wrong = 0
    with multiprocessing.Pool() as pool:
        scenes = [(name, most) for name in names]
        for name, found in pool.imap_unordered(explored, scenes):
            states += found.states
            wrong += bool(found.wrong)
            reach = "whole" if found.whole else "as far as it went"
            print(f"{name}: {found.states} states, {reach}", flush=True)
            if found.wrong:
                print(found.wrong, end="\n\n", flush=True)
    print(f"{len(names)} explorations, {states} states, {wrong} went wrong")
    return 1 if wrong or not names else 0


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*PARTS, "explore"])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, help="tell the story of one seed")
    parser.add_argument("--states", type=int, default=100_000, help="so many of each scene at most")
    parser.add_argument("--scene", default="", help="only scenes whose name has these words")
    chosen = parser.parse_args(arguments)
    if chosen.what == "explore":
        return explorations(chosen.scene, chosen.states)
    part = PARTS[chosen.what]
    if chosen.only is not None:
        print(part.story(chosen.only))
        return 0
    kinds: Counter[str] = Counter()
    first: dict[str, int] = {}
    nodes = 0
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    began = time.monotonic()
    with multiprocessing.Pool() as pool:
        for seed, wrong, done in pool.imap_unordered(part.run, seeds, chunksize=8):
            nodes += done
            if wrong:
                kind = wrong.partition(":")[0]
                kinds[kind] += 1
                first[kind] = min(seed, first.get(kind, seed))
    for kind, number in kinds.most_common():
        print(f"{number} of {len(seeds)} go wrong ({kind}), first {first[kind]}:")
        print(part.story(first[kind]), end="\n\n")
    took = time.monotonic() - began
    print(
        f"{len(seeds)} seeds in {took:.0f} s, {nodes} nodes ended in place,"
        f" {kinds.total()} went wrong"
    )
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
