"""Long randomised runs, on all processors: `python -m tools.soak engine --seeds N [--first M]`.

Each seed is a small rollout on a simulated cluster, judged by the audit. What goes wrong is shrunk
and told, once for each kind; the exit status says whether anything did.
"""

import argparse
import multiprocessing
import sys
from collections import Counter

from tests.component.rollout.simulation.play import play
from tests.component.rollout.simulation.scenario import scenario
from tests.component.rollout.simulation.shrinking import shrunk
from tests.component.rollout.simulation.story import story


def told(seed: int) -> tuple[int, str, int]:
    """One seed: what is wrong with it, and how many nodes ended in place."""
    played = play(scenario(seed))
    wrong = played.wrong
    return seed, f"{wrong.kind}: {wrong.message}" if wrong is not None else "", played.done


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("what", choices=["engine"])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, default=None, help="tell the story of one seed")
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        print(story(shrunk(play(scenario(chosen.only)))))
        return 0
    kinds: Counter[str] = Counter()
    first: dict[str, int] = {}
    nodes = 0
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    with multiprocessing.Pool() as pool:
        for seed, wrong, done in pool.imap_unordered(told, seeds, chunksize=8):
            nodes += done
            if wrong:
                kind = wrong.partition(":")[0]
                kinds[kind] += 1
                first[kind] = min(seed, first.get(kind, seed))
    for kind, number in kinds.most_common():
        print(f"{number} of {len(seeds)} go wrong ({kind}), first {first[kind]}:")
        print(story(shrunk(play(scenario(first[kind])))), end="\n\n")
    print(f"{len(seeds)} rollouts, {nodes} nodes ended in place, {kinds.total()} went wrong")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
