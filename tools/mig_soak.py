"""Divide the GPUs of a node through pynvml: `python -m tools.soak mig [--scene WORDS]`.

In each story the driver agent is killed, or the machine loses its power, at the first sub-step,
then at the second, and so on until none is left. All stories take about an hour on two processors.
"""

import argparse

from tests.component.scheduler.mig_stories import STORIES, play_deaths
from tools.soak_work import exit_status, results


def main(arguments: list[str]) -> int:
    """Run the soak and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="soak mig", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", default="", help="only stories whose names contain these words")
    words = parser.parse_args(arguments).scene
    names = [name for name in STORIES if words in name]
    done = deaths = wrong = 0
    stopped = False
    try:
        # A story leaves nothing for the next one.
        for name, died, found in results(_play, names, each_alone=True):
            done += 1
            deaths += died
            wrong += bool(found)
            print(f"{name}: {found or f'{died} deaths'}", flush=True)
    except KeyboardInterrupt:
        stopped = True
    print(f"{done} of {len(names)} stories, {deaths} deaths, {wrong} failed")
    return exit_status(wrong=bool(wrong) or not names, stopped=stopped)


def _play(name: str) -> tuple[str, int, str]:
    """Play a story; return its name, the number of deaths, and what was wrong."""
    try:
        result = play_deaths(STORIES[name])
    except Exception as error:  # noqa: BLE001  (the other stories are still played)
        return name, 0, f"{type(error).__name__}: {error}"
    problems = result.problems if result.deaths else ["nothing died"]
    return name, result.deaths, "; ".join(problems)
