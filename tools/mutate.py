"""Break each guard of the engine in turn, and say which nobody noticed: `python -m tools.mutate`.

The engine and its tests are copied aside, so the checkout stays as it is. The tests of the room in
which a guard is come first, then a few rollouts of the simulation, until one of them fails. What
was found is kept in `.cache/mutations.jsonl` and not looked for again while the function around the
guard reads the same; `--again` looks once more at those that nobody noticed.

    python -m tools.mutate --list --only harm          what there is to break
    python -m tools.mutate --only underway/beginning   one module
    python -m tools.mutate --sample 100 --seed 7       some of all, by chance
    python -m tools.mutate --report                    what was found so far
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final, NamedTuple

from tools.mutations import Mutation, mutated, mutations

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = Path("libs/rollout/src")
ENGINE: Final = SOURCES / "sluice/rollout"
TESTS: Final = Path("tests/unit/rollout")
RESULTS: Final = Path(".cache/mutations.jsonl")
SEEDS: Final = 24
"""So many small rollouts are played where no test of the room fails."""

ROOMS: Final[dict[str, tuple[str, ...]]] = {
    "harm": ("allocate", "reconcile", "deciding"),
    "budget": ("allocate", "reconcile", "deciding"),
    "allocate": ("deciding",),
    "reconcile": ("allocate", "deciding"),
    "underway": ("step",),
    "rest": ("step", "deciding"),
    "edits": ("step",),
    "deciding": (),
    "order": ("allocate", "deciding"),
    "freshness": ("allocate", "deciding"),
    "slots": ("underway",),
    "limits": ("underway",),
    "step": ("underway", "rest", "edits"),
}
"""The rooms of the engine, and whose tests beside their own have something to say."""

NOTICED, SURVIVED, TIMEOUT = "noticed", "survived", "timeout"


class Found(NamedTuple):
    """What became of one guard that was broken."""

    key: str
    module: str
    line: int
    what: str
    verdict: str
    by: str = ""
    """The first test that failed, or the rollouts."""


class Target(NamedTuple):
    """A guard to be broken: where it is."""

    room: str
    module: str
    mutation: Mutation

    @property
    def shown(self) -> str:
        """As an editor finds it."""
        return f"{ENGINE / self.module}.py:{self.mutation.line}"


class Stuck(Exception):
    """Nothing can be said about guards: the tests fail although nothing is broken."""


def targets(root: Path, only: Sequence[str]) -> Iterator[Target]:
    """All guards of the engine, or of these rooms and modules."""
    for room in ROOMS:
        base = root / ENGINE
        paths = [base / f"{room}.py"] if (base / f"{room}.py").exists() else (base / room).glob("*")
        for path in sorted(each for each in paths if each.suffix == ".py"):
            module = path.relative_to(base).with_suffix("").as_posix()
            if only and not {module, room}.intersection(only):
                continue
            for mutation in mutations(path.read_text()):
                yield Target(room, module, mutation)


class Workshop:
    """A copy of the engine and of its tests, in which one guard at a time is broken."""

    def __init__(self, root: Path, at: Path) -> None:
        self._at = at
        clean = shutil.ignore_patterns("__pycache__")
        for part in (SOURCES, Path("tests"), Path("tools")):
            shutil.copytree(root / part, at / part, ignore=clean)
        shutil.copy(root / "pyproject.toml", at)
        self._usual: dict[str, float] = {}

    def verdict(self, target: Target) -> tuple[str, str]:
        """Who notices that this guard is broken."""
        path = self._at / ENGINE / f"{target.module}.py"
        source = path.read_text()
        for command in self._commands(target):
            limit = 10 * self._usually(command) + 20
            path.write_text(mutated(source, target.mutation))
            try:
                done = self._run(command, limit)
            except subprocess.TimeoutExpired:
                return TIMEOUT, command[-1]
            finally:
                path.write_text(source)
            if done.returncode:
                return NOTICED, _first(done.stdout) or command[-1]
        return SURVIVED, ""

    def _commands(self, target: Target) -> list[list[str]]:
        own = sorted((self._at / TESTS / target.room).glob("test_*.py"))
        own += sorted((self._at / TESTS / "guards").glob(f"test_{target.room}*.py"))
        name = target.module.rpartition("/")[2]
        own.sort(key=lambda path: _likeness(path.stem, name), reverse=True)
        beside = [self._at / TESTS / room for room in ROOMS[target.room]]
        tests = [[str(path.relative_to(self._at)) for path in paths] for paths in (own, beside)]
        commands = [[sys.executable, "-m", "pytest", "-x", "-q", *each] for each in tests if each]
        return [*commands, [sys.executable, "-m", "tools.mutate", "--play", str(SEEDS)]]

    def _usually(self, command: list[str]) -> float:
        """How long it takes while nothing is broken; asked once for each."""
        key = " ".join(command)
        if key in self._usual:
            return self._usual[key]
        began = time.monotonic()
        done = self._run(command, 900)
        if done.returncode:
            raise Stuck(
                f"while nothing is broken, `{key}` ends with {done.returncode}; mend that first, or"
                f" nothing can be said about guards:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        self._usual[key] = time.monotonic() - began
        return self._usual[key]

    def _run(self, command: list[str], limit: float) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join((str(self._at / SOURCES), str(self._at)))
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }
        return subprocess.run(
            command,
            cwd=self._at,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )


def _first(output: str) -> str:
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0].split(" ", 1)[1]
    return ""


def _likeness(test: str, module: str) -> int:
    """How much a test's name says that it is about this module: it is asked first."""
    return SequenceMatcher(a=test.removeprefix("test_"), b=module).find_longest_match().size


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


def played(seeds: int) -> int:
    """Whether so many small rollouts end well: the exit status."""
    from tests.component.rollout.simulation.play import play
    from tests.component.rollout.simulation.scenario import scenario

    for seed in range(seeds):
        wrong = play(scenario(seed)).wrong
        if wrong is not None:
            print(f"FAILED seed {seed} - {wrong.kind}: {wrong.message}")
            return 1
    return 0


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
            print(f"{found.verdict}: {one.shown} {one.mutation.function}: {one.mutation.what}")
    print(f"{'room':12}{'guards':>8}{'tried':>8}{NOTICED:>9}{SURVIVED:>10}{TIMEOUT:>9}")
    for room, counts in by_room.items():
        numbers = f"{counts.total():8}{counts[NOTICED]:9}{counts[SURVIVED]:10}{counts[TIMEOUT]:9}"
        print(f"{room:12}{listed[room]:8}{numbers}")
    return 1 if unnoticed else 0


def look(chosen: Sequence[Target], ledger: Ledger, *, again: bool) -> None:
    """Break those of which nothing is known yet."""
    due = [one for one in chosen if not ledger.known(one, again=again)]
    with tempfile.TemporaryDirectory(prefix="mutate-") as at:
        workshop = Workshop(ROOT, Path(at))
        for number, one in enumerate(due, 1):
            verdict, by = workshop.verdict(one)
            mutation = one.mutation
            ledger.add(Found(mutation.key, one.module, mutation.line, mutation.what, verdict, by))
            print(f"{number}/{len(due)} {verdict}: {one.shown} {mutation.what}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="a room, or room/module")
    parser.add_argument("--sample", type=int, default=None, help="so many of them, by chance")
    parser.add_argument("--seed", type=int, default=0, help="of that chance")
    parser.add_argument("--list", action="store_true", help="say what there is to break, and stop")
    parser.add_argument("--report", action="store_true", help="say what was found so far, and stop")
    parser.add_argument("--again", action="store_true", help="also those that nobody noticed")
    parser.add_argument("--play", type=int, default=None, help="play so many rollouts, and stop")
    chosen = parser.parse_args(arguments)
    if chosen.play is not None:
        return played(chosen.play)
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
        look(some, ledger, again=chosen.again)
    return report(some, ledger)


if __name__ == "__main__":
    sys.exit(main())
