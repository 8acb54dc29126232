"""Break each guard of the engine in turn, and say which nobody noticed: `python -m tools.mutate`.

The files of the checkout stay as they are. Tests of the engine and a few rollouts of the simulation
are asked until one of them fails: see `noticing`. What was found is kept in
`.cache/mutations.jsonl` and not looked for again while the function around the guard reads the
same; `--again` looks once more at those that nobody noticed, and asks everybody who runs the line.

    python -m tools.mutate --list --only harm          what there is to break
    python -m tools.mutate --only underway/beginning   one module
    python -m tools.mutate --only edits --again --by tests/unit/rollout/guards/test_edits.py
                                                       whether a new test notices, in seconds
    python -m tools.mutate --sample 100 --seed 7       some of all, by chance
    python -m tools.mutate --report                    what was found so far
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from tools.mutations import Mutation, mutated, mutations
from tools.noticing import NOTICED, SURVIVED, TIMEOUT, Change, Court, Witness, witnesses

ROOT: Final = Path(__file__).resolve().parent.parent
ENGINE: Final = Path("libs/rollout/src/sluice/rollout")
SURROUNDINGS: Final = ("stage", "world")
"""Where no guard of the engine is: what it is tried on."""
PATIENCE: Final = 4.0
"""Processor seconds for one guard at first; many who run its line look at other things."""
RESULTS: Final = Path(".cache/mutations.jsonl")


class Found(NamedTuple):
    """What became of one guard that was broken."""

    key: str
    module: str
    line: int
    what: str
    verdict: str
    by: str = ""
    """The first that failed, or how many did not."""


class Target(NamedTuple):
    """A guard to be broken: where it is."""

    path: Path
    module: str
    source: str
    mutation: Mutation

    @property
    def room(self) -> str:
        """The part of the engine it belongs to."""
        return self.module.split("/")[0]

    @property
    def shown(self) -> str:
        """As an editor finds it."""
        return f"{ENGINE / self.module}.py:{self.mutation.line}"

    def change(self) -> Change:
        """The module with the guard broken."""
        tree = mutated(self.source, self.mutation)
        return Change(
            self.room, self.path, tree, range(self.mutation.line, self.mutation.until + 1)
        )


def targets(root: Path, only: Sequence[str]) -> Iterator[Target]:
    """All guards of the engine, or of these rooms and modules in this order."""
    base = root / ENGINE
    found = {path.relative_to(base).with_suffix("").as_posix(): path for path in base.rglob("*.py")}
    for wanted in only or [""]:
        for module, path in sorted(found.items()):
            room = module.split("/")[0]
            if room in SURROUNDINGS or wanted not in {"", module, room}:
                continue
            source = path.read_text()
            for mutation in mutations(source):
                yield Target(path, module, source, mutation)


class Ledger:
    """What was found so far, one line each; the last word about a guard counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.found = {one.key: one for one in (Found(**json.loads(line)) for line in lines)}

    def add(self, found: Found) -> None:
        """It is kept at once: whoever stops us loses one guard at most."""
        self.found[found.key] = found
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(found._asdict()) + "\n")

    def known(self, target: Target, *, again: bool) -> bool:
        """Whether nothing has to be looked for."""
        found = self.found.get(target.mutation.key)
        return found is not None and not (again and found.verdict == SURVIVED)


def report(all_of_them: Sequence[Target], ledger: Ledger) -> int:
    """What is known of these guards; the exit status says whether one went unnoticed."""
    listed = Counter(one.room for one in all_of_them)
    by_room: dict[str, Counter[str]] = {room: Counter() for room in listed}
    unnoticed = False
    for one in all_of_them:
        found = ledger.found.get(one.mutation.key)
        if found is None:
            continue
        by_room[one.room][found.verdict] += 1
        if found.verdict != NOTICED:
            unnoticed = unnoticed or found.verdict == SURVIVED
            where = f"{one.shown} {one.mutation.function}"
            print(f"{found.verdict}: {where}: {one.mutation.what} ({found.by})")
    print(f"{'room':12}{'guards':>8}{'tried':>8}{NOTICED:>9}{SURVIVED:>10}{TIMEOUT:>9}")
    for room, counts in by_room.items():
        numbers = f"{counts.total():8}{counts[NOTICED]:9}{counts[SURVIVED]:10}{counts[TIMEOUT]:9}"
        print(f"{room:12}{listed[room]:8}{numbers}")
    return 1 if unnoticed else 0


def look(chosen: Sequence[Target], ledger: Ledger, by: Sequence[str], *, again: bool) -> None:
    """Break those of which nothing is known yet."""
    due = [one for one in chosen if not ledger.known(one, again=again)]

    def walk(all_of_them: list[Witness]) -> None:
        court = Court(all_of_them, {one.path for one in due}, patience=inf if again else PATIENCE)
        for one in chosen:
            found = ledger.found.get(one.mutation.key)
            if found is not None and found.verdict == NOTICED:
                court.remember(one.path, found.by)
        for number, one in enumerate(due, 1):
            verdict = court.verdict(one.change())
            mutation = one.mutation
            ledger.add(Found(mutation.key, one.module, mutation.line, mutation.what, *verdict))
            print(f"{number}/{len(due)} {verdict.word}: {one.shown} {mutation.what}", flush=True)

    if due:
        witnesses(walk, by)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="a room, or room/module")
    parser.add_argument("--sample", type=int, default=None, help="so many of them, by chance")
    parser.add_argument("--seed", type=int, default=0, help="of that chance")
    parser.add_argument("--by", action="append", default=[], help="ask only the tests in this path")
    parser.add_argument("--list", action="store_true", help="say what there is to break, and stop")
    parser.add_argument("--report", action="store_true", help="say what was found so far, and stop")
    parser.add_argument("--again", action="store_true", help="also those that nobody noticed")
    chosen = parser.parse_args(arguments)
    some = list(targets(ROOT, chosen.only))
    if not some:
        parser.error(f"there is no room or module {', '.join(chosen.only)}: see --list")
    if chosen.sample is not None:
        kept = random.Random(chosen.seed).sample(range(len(some)), min(chosen.sample, len(some)))
        some = [some[number] for number in sorted(kept)]
    if chosen.list:
        for one in some:
            print(f"{one.shown} {one.mutation.function}: {one.mutation.what}")
        print(f"{len(some)} guards")
        return 0
    ledger = Ledger(ROOT / RESULTS)
    if not chosen.report:
        look(some, ledger, chosen.by, again=chosen.again)
    return report(some, ledger)


if __name__ == "__main__":
    sys.exit(main())
