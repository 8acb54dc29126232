"""Long randomised runs, on all processors: `python -m tools.soak WHAT --seeds N [--first M]`.

`engine` runs a small rollout of the engine alone per seed, `campaign` the whole system with all its
services. The audit judges both. The first failure of each kind is told at once, and reported in
full at the end; the exit status is 1 if any seed failed. Ctrl-C or SIGTERM stops every soak, which
then tells what it found so far.

`fuzz --seeds N` sends random bytes to NATS, HTTP and every decoder, and forged tokens to sign-in
(250 N), `storm` runs the demo's real
processes under faults with a hostile node (its own options: `storm --help`).

`nodes --times N` starts and stops a pair of real nodes (`make node`).

`mig [--scene WORDS]` divides the GPUs of a node, and agent or machine die at every sub-step.

`explore --states N [--scene WORDS]` tries every order of events in scenarios that are too large for
a test, up to N states each, and reports a shortest failing sequence.

`system` upgrades two real nodes again and again, with each kill in each phase, a reboot in each
step, drivers that do not work, images that are missing and GPUs by claims, one upgrade after
another, and looks for planted faults there: about two hours.

`install` installs, upgrades and removes Sluice on real nodes by Helm and by kubectl, all scenes.

`tests` runs the tests that are marked `soak`: each says beside it why it is too dear for each run.
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tests.component.campaign import campaign
from tests.component.campaign import scenario as campaigns
from tests.component.rollout.exploration.long_explorations import (
    LongExplorationResult,
    long_explorations,
)
from tests.component.rollout.simulation.failures import failure_report, shrink_failure
from tests.component.rollout.simulation.runner import run_scenario
from tests.component.rollout.simulation.scenario import scenario
from tests.security.fuzz_messages import FUZZ_SEEDS
from tests.system.install import world as install_world
from tests.system.upgrade import kills
from tools.mig_soak import main as mig_soak
from tools.nodes_soak import main as nodes_soak
from tools.soak_work import SeedResult, SeedTally, exit_status, results, run_pytest, stop_on_sigterm
from tools.storm.__main__ import main as storm


class SoakTarget(NamedTuple):
    run: Callable[[int], SeedResult]
    report: Callable[[int], str]


def _engine(seed: int) -> SeedResult:
    result = run_scenario(scenario(seed))
    wrong = result.failure
    failure = f"{wrong.kind}: {wrong.message}" if wrong is not None else ""
    return SeedResult(seed, failure, result.nodes_in_place)


def _campaign(seed: int) -> SeedResult:
    try:
        result = campaign.run_seed(campaigns.scenario(seed))
    except Exception as error:  # noqa: BLE001  (the other seeds still run)
        return SeedResult(seed, f"crash {type(error).__name__}: {error}", 0)
    first = result.failures[0] if result.failures else None
    return SeedResult(seed, str(first or ""), 0 if first else len(result.scenario.nodes))


def _engine_report(seed: int) -> str:
    return failure_report(shrink_failure(run_scenario(scenario(seed))))


def _campaign_report(seed: int) -> str:
    return campaign.seed_report(campaign.run_seed(campaigns.scenario(seed)))


PARTS: Final = {
    "engine": SoakTarget(_engine, _engine_report),
    "campaign": SoakTarget(_campaign, _campaign_report),
}

FUZZ_TESTS: Final = (
    "tests/security/test_fuzz_bus.py",
    "tests/security/test_fuzz_http.py",
    "tests/security/test_fuzz_signin.py",
)


def explore(task: tuple[str, int]) -> tuple[str, LongExplorationResult]:
    """Explore one scene up to a number of states."""
    name, max_states = task
    return name, long_explorations()[name](max_states)


def explore_all(words: str, max_states: int) -> int:
    """Explore the scenes whose names contain some words; return the exit status."""
    names = [name for name in long_explorations() if words in name]
    done = states = wrong = 0
    stopped = False
    try:
        for name, result in results(explore, [(name, max_states) for name in names]):
            done += 1
            states += result.states
            wrong += bool(result.failure)
            extent = "complete" if result.complete else "stopped at the limit"
            print(f"{name}: {result.states} states, {extent}", flush=True)
            if result.failure:
                print(result.failure, end="\n\n", flush=True)
    except KeyboardInterrupt:
        stopped = True
    print(f"{done} of {len(names)} explorations, {states} states, {wrong} failed")
    return exit_status(wrong=bool(wrong) or not names, stopped=stopped)


def fuzz(seeds: int) -> int:
    """Run the fuzzing tests with this many seeds; return the exit status."""
    return run_pytest(["-q", *FUZZ_TESTS], {FUZZ_SEEDS: str(seeds)})


REAL_NODES: Final = {
    "install": ("tests/system/install", install_world.VARIABLE, install_world.ALL),
    "system": ("tests/system/upgrade", kills.VARIABLE, kills.ALL),
}
"""Tests on real nodes, and the variable and its value with which all their scenes run."""


def on_real_nodes(what: str) -> int:
    """Run all scenes of these tests; return the exit status."""
    folder, variable, value = REAL_NODES[what]
    return run_pytest(["-v", folder], {variable: value})


def marked(arguments: list[str]) -> int:
    """Run the tests that are too dear for each run; return the exit status."""
    return run_pytest(["-v", "--soak", *(arguments or ["tests"])])


def run_seeds(part: SoakTarget, seeds: range) -> int:
    """Run the seeds and tell what they show; return the exit status."""
    tally, started = SeedTally(len(seeds)), time.monotonic()
    tally.observe_all(results(part.run, seeds, chunksize=8), partial(print, flush=True))
    for failure, seed in zip(tally.failures, tally.first_seeds, strict=True):
        # A report plays its seed again and again: it is not what a stopped soak is waited for.
        print(f"{failure}{'' if tally.stopped else ':'}")
        if not tally.stopped:
            print(part.report(seed), end="\n\n")
    how = "stopped" if tally.stopped else "done"
    print(f"{how} after {time.monotonic() - started:.0f} s: {tally.summary}", flush=True)
    return tally.status


def main(arguments: list[str] | None = None) -> int:
    """Run the soak and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    stop_on_sigterm()
    if arguments[:1] == ["storm"]:
        return storm(arguments[1:])
    if arguments[:1] == ["tests"]:
        return marked(arguments[1:])
    if arguments[:1] == ["nodes"]:
        return nodes_soak(arguments[1:])
    if arguments[:1] == ["mig"]:
        return mig_soak(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", choices=[*PARTS, *REAL_NODES, "explore", "fuzz", "mig", "nodes", "storm", "tests"]
    )
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, help="report one seed in full")
    parser.add_argument("--states", type=int, default=100_000, help="the limit of states per scene")
    parser.add_argument("--scene", default="", help="only scenes whose names contain these words")
    options = parser.parse_args(arguments)
    if options.what == "explore":
        return explore_all(options.scene, options.states)
    if options.what == "fuzz":
        return fuzz(options.seeds)
    if options.what in REAL_NODES:
        return on_real_nodes(options.what)
    part = PARTS[options.what]
    if options.only is not None:
        print(part.report(options.only))
        return 0
    return run_seeds(part, range(options.first, options.first + options.seeds))


if __name__ == "__main__":
    sys.exit(main())
