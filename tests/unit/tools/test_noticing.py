"""Who notices a change, who is not even asked, and what is said of one without end."""

import ast
import gc
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tools import noticing
from tools.mutations import mutated, mutations
from tools.noticing import NOTICED, SURVIVED, TIMEOUT, Change, Court, Stuck, Verdict, Witness

SOURCE = """
from functools import lru_cache

@lru_cache
def over(used, limit):
    return used > limit

def count(limit):
    made = 0
    while made != limit:
        made += 1
    return made
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """A module with two guards."""
    path = tmp_path / "guarded.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("guarded", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a court keeps from the garbage collector is given back."""
    monkeypatch.setattr(noticing, "SPARE", 0.05)
    yield
    gc.unfreeze()


def court(module: ModuleType, patience: float = 60.0) -> Court:
    def over() -> str:
        return "" if module.over(2, 1) else "two are not more than one"

    def counts() -> str:
        return "" if module.count(3) == 3 else "it counts wrongly"

    witnesses = [Witness("over", over), Witness("counts", counts), Witness("idle", lambda: "")]
    return Court(witnesses, [Path(str(module.__file__))], patience=patience)


def verdicts(module: ModuleType, court: Court) -> dict[str, Verdict]:
    path = Path(str(module.__file__))
    return {
        one.what: court.verdict(
            Change("room", path, mutated(SOURCE, one), range(one.line, one.until + 1))
        )
        for one in mutations(SOURCE)
    }


def test_a_change_is_noticed_by_those_who_run_its_line(module: ModuleType) -> None:
    assert verdicts(module, court(module)) == {
        "used > limit: > -> >=": Verdict(SURVIVED, "1 of 1 who run it"),
        "used > limit: > -> <=": Verdict(NOTICED, "over"),
        "made != limit: != -> ==": Verdict(NOTICED, "counts"),
    }
    assert module.over(2, 1)


def test_what_comes_to_no_end_is_ended(module: ModuleType) -> None:
    path, line = Path(str(module.__file__)), SOURCE.splitlines().index("        made += 1")
    change = Change("room", path, ast.parse(SOURCE.replace("+= 1", "+= 0")), range(line, line + 2))
    assert court(module).verdict(change) == Verdict(TIMEOUT, "counts")


def test_without_patience_nobody_is_asked(module: ModuleType) -> None:
    assert set(verdicts(module, court(module, patience=0.0)).values()) == {
        Verdict(SURVIVED, "0 of 1 who run it")
    }


def test_nothing_is_said_while_somebody_fails_anyway(module: ModuleType) -> None:
    with pytest.raises(Stuck, match="broken fails while nothing is changed"):
        Court([Witness("broken", lambda: "as it is")], [])


def test_who_passes_only_once_has_noticed_nothing(module: ModuleType) -> None:
    heard: list[str] = []

    def once() -> str:
        heard.append(str(module.over(2, 1)))
        return "" if len(heard) == 1 else "heard before"

    path = Path(str(module.__file__))
    one, *_ = mutations(SOURCE)
    change = Change("room", path, mutated(SOURCE, one), range(one.line, one.until + 1))
    with pytest.raises(Stuck, match="fails when it is heard twice"):
        Court([Witness("once", once)], [path]).verdict(change)
