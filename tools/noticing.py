"""Who notices that a function of the engine is not what it was: its tests, and rollouts played.

All are brought together in one process and heard once while nothing is broken, to learn who runs
which line, and for how long. A change is tried in a fork of that process, in which the functions
are given other code; only those who run the line are heard, until one of them fails. Must not know
what a guard is.
"""

import ast
import gc
import os
import resource
import signal
import sys
import time
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import inf
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final, NamedTuple, NoReturn

import pytest

from tests.component.rollout.simulation.play import play
from tests.component.rollout.simulation.scenario import scenario

NOTICED, SURVIVED, TIMEOUT = "noticed", "survived", "timeout"
TESTS: Final = "tests/unit/rollout"
SEEDS: Final = 24
"""So many small rollouts are played."""
CACHE: Final = type(lru_cache(len))
ENOUGH: Final = 30
"""Who calls a function more often counts as running all its lines."""
CHANGES: Final = 150
"""So often decisions are made on what changed, and compared with those on everything."""
MOST_MEMORY: Final = 4 << 30
NEAR: Final = 4.0
"""So many times as long as others a test of the room may take, and is heard before them."""
SPARE: Final = 2.0
"""Processor seconds that each may take beyond ten times what it usually takes."""


class Stuck(Exception):
    """Nothing can be said about changes: something fails although nothing is changed."""


class Change(NamedTuple):
    """A module that reads otherwise in some lines."""

    room: str
    path: Path
    tree: ast.Module
    lines: range


class Verdict(NamedTuple):
    """What became of a change."""

    word: str
    by: str = ""
    """Who noticed it or did not come to an end; or how many did not notice."""


class Witness(NamedTuple):
    """Somebody who may notice a change."""

    name: str
    wrong: Callable[[], str]
    """What is wrong, in words, if anything is."""


class Court:
    """All witnesses, and what they did while nothing was changed.

    Without `patience`, all who run a line are heard; with it, those who most likely notice, for
    about so many processor seconds.
    """

    def __init__(
        self, witnesses: Sequence[Witness], paths: Iterable[Path], *, patience: float = inf
    ) -> None:
        self._witnesses = witnesses
        self._patience = patience
        self._cost: dict[str, float] = {}
        self._ran: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._noticed: dict[Path, Counter[str]] = defaultdict(Counter)
        self._trusted: set[str] = set()
        held = gc.get_objects()
        self._caches: list[Any] = [one for one in held if type(one) is CACHE]
        self._listen({str(path) for path in paths})
        self._functions: dict[object, list[FunctionType]] = defaultdict(list)
        for one in held:
            if isinstance(one, FunctionType):
                self._functions[_name(one.__code__)].append(one)
        gc.freeze()

    def remember(self, path: Path, by: str) -> None:
        """That this one noticed a change of this module: it is heard earlier about the next."""
        self._noticed[path][by] += 1

    def verdict(self, change: Change) -> Verdict:
        """Who notices it, or that nobody does."""
        heard, able = self._heard(change)
        word, last = self._tried(change, heard)
        if word == SURVIVED:
            return Verdict(word, f"{len(heard)} of {able} who run it")
        if not last:
            return Verdict(SURVIVED, "it cannot be put in place")
        if word == NOTICED:
            self._trust(next(one for one in heard if one.name == last))
            self.remember(change.path, last)
        return Verdict(word, last)

    def _trust(self, one: Witness) -> None:
        """Who passes only once in a process has noticed nothing but that."""
        if one.name not in self._trusted:
            if self._tried(None, [one])[0] != SURVIVED:
                raise Stuck(f"{one.name} fails when it is heard twice, though nothing is changed")
            self._trusted.add(one.name)

    def _tried(self, change: Change | None, heard: Sequence[Witness]) -> tuple[str, str]:
        """What comes of it, and who was heard last."""
        sys.stdout.flush()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            self._try(change, heard, writing)
        os.close(writing)
        with os.fdopen(reading) as said:
            last = (said.read().splitlines() or [""])[-1]
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return TIMEOUT, last
        return NOTICED if os.WEXITSTATUS(status) else SURVIVED, last

    def _heard(self, change: Change) -> tuple[list[Witness], int]:
        """Who is asked, in this order, and how many could be."""
        names: set[str] = set()
        for line in change.lines:
            names |= self._ran[str(change.path), line]
        noticed = self._noticed[change.path]

        def rank(one: Witness) -> tuple[int, float]:
            return -noticed[one.name], self._cost[one.name] / (
                NEAR if change.room in one.name else 1
            )

        able = sorted((one for one in self._witnesses if one.name in names), key=rank)
        spent = list(accumulate(self._cost[one.name] for one in able))
        return able[: bisect(spent, self._patience)], len(able)

    def _try(self, change: Change | None, heard: Sequence[Witness], writing: int) -> NoReturn:
        """In the fork. Each name is told before it is heard: the last one has it."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        wrong = False
        try:
            if change is not None:
                self._put(change)
            for one in heard:
                os.write(writing, f"{one.name}\n".encode())
                signal.setitimer(signal.ITIMER_VIRTUAL, 10 * self._cost[one.name] + SPARE)
                wrong = bool(one.wrong())
                if wrong:
                    break
        except BaseException:  # noqa: BLE001 - however it ends, this fork ends here
            wrong = True
        finally:
            os._exit(wrong)

    def _put(self, change: Change) -> None:
        for code in _codes(compile(change.tree, str(change.path), "exec", dont_inherit=True)):
            for function in self._functions[_name(code)]:
                function.__code__ = code
        self._forget()

    def _forget(self) -> None:
        """What was found once would be found again without anybody running a line."""
        for cache in self._caches:
            cache.cache_clear()

    def _listen(self, paths: set[str]) -> None:
        """To everybody, while nothing is changed."""
        lines: set[tuple[str, int]] = set()
        calls: Counter[CodeType] = Counter()

        def inside(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            return inside

        def outside(frame: FrameType, _: str, __: Any) -> Any:
            code = frame.f_code
            if code.co_filename not in paths:
                return None
            calls[code] += 1
            return inside if calls[code] <= ENOUGH else None

        for one in self._witnesses:
            lines.clear()
            calls.clear()
            self._forget()
            began = time.process_time()
            sys.settrace(outside)
            try:
                wrong = one.wrong()
            finally:
                sys.settrace(None)
            if wrong:
                raise Stuck(f"{one.name} fails while nothing is changed; mend that first:\n{wrong}")
            self._cost[one.name] = time.process_time() - began
            for code in (code for code, times in calls.items() if times > ENOUGH):
                lines.update((code.co_filename, line) for *_, line in code.co_lines() if line)
            for line in lines:
                self._ran[line].add(one.name)


class Collected:
    """A plugin of pytest that hands over the tests as witnesses instead of running them."""

    def __init__(self, use: Callable[[list[Witness]], None]) -> None:
        self._use = use
        self._wrong: list[str] = []

    def pytest_configure(self) -> None:
        """Examples are the same each time however long they take, and no failing one is kept."""
        import hypothesis

        hypothesis.settings.register_profile(
            "noticing",
            database=None,
            deadline=None,
            derandomize=True,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        hypothesis.settings.load_profile("noticing")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Stands in for pytest's own."""
        if session.testsfailed:
            raise Stuck(f"the tests cannot be collected: see `pytest --collect-only {TESTS}`")
        self._use([Witness(item.nodeid, self._hearing(item)) for item in session.items])
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of each part of a test."""
        if report.failed:
            self._wrong.append(report.longreprtext)

    def _hearing(self, item: pytest.Item) -> Callable[[], str]:
        def wrong() -> str:
            self._wrong.clear()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            return "\n".join(self._wrong)

        return wrong


def witnesses(use: Callable[[list[Witness]], None], paths: Sequence[str]) -> None:
    """Brings all of them together, for as long as they are used; or only the tests in `paths`."""
    plugin = Collected(lambda tests: use(tests if paths else [*tests, *_plays()]))
    if pytest.main(["-q", "-s", "--no-summary", *(paths or [TESTS])], plugins=[plugin]):
        raise Stuck("the tests do not pass while nothing is changed: see above")


def _plays() -> Iterator[Witness]:
    for seed in range(SEEDS):
        yield Witness(f"rollout {seed}", lambda seed=seed: _played(seed))
    for first in range(0, CHANGES, 5):
        yield Witness(f"deciding {first}", lambda first=first: _decided(range(first, first + 5)))


def _played(seed: int) -> str:
    wrong = play(scenario(seed)).wrong
    return f"{wrong.kind}: {wrong.message}" if wrong is not None else ""


def _decided(seeds: range) -> str:
    from tests.component.rollout.properties import test_same_as_whole as same

    both: tuple[Any, ...] = (same.test_whatever_changed, same.test_whichever_pools_come_and_go)
    for seed in seeds:
        for decided in both:
            decided.hypothesis.inner_test(seed)
    return ""


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Of the functions in it, to any depth."""
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield held
            yield from _codes(held)


def _name(code: CodeType) -> object:
    return code.co_filename, code.co_qualname, code.co_firstlineno
