"""Which guards are looked at, what is kept of them, and what is said at the end."""

from pathlib import Path

import pytest

from tools.mutate import ENGINE, ROOT, Found, Ledger, Target, report, targets
from tools.noticing import NOTICED, SURVIVED

SOURCE = "def over(used: int, limit: int) -> bool:\n    return used > limit\n"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A checkout with two rooms of the engine."""
    base = tmp_path / ENGINE
    (base / "underway").mkdir(parents=True)
    (base / "stage").mkdir()
    (base / "stage" / "paths.py").write_text(SOURCE)
    (base / "harm.py").write_text(SOURCE)
    (base / "underway" / "beginning.py").write_text(SOURCE)
    (base / "underway" / "ending.py").write_text(SOURCE)
    return tmp_path


def found(target: Target, verdict: str) -> Found:
    mutation = target.mutation
    return Found(mutation.key, target.module, mutation.line, mutation.what, verdict, "3 run it")


def test_a_room_or_one_module_of_it_can_be_chosen(engine: Path) -> None:
    assert [one.module for one in targets(engine, [])] == [
        "harm", "harm", "underway/beginning", "underway/beginning", "underway/ending",
        "underway/ending",
    ]  # fmt: skip
    assert {one.module for one in targets(engine, ["underway"])} == {
        "underway/beginning",
        "underway/ending",
    }
    only = list(targets(engine, ["underway/ending"]))
    assert [one.shown for one in only] == [f"{ENGINE}/underway/ending.py:2"] * 2
    assert not list(targets(engine, ["no-such-room"]))


def test_the_engine_has_guards_and_what_it_is_tried_on_does_not_count() -> None:
    rooms = {one.room for one in targets(ROOT, [])}
    assert {"harm", "budget", "reconcile", "underway", "audit", "forecast"} <= rooms
    assert not {"stage", "world"} & rooms


def test_what_was_found_is_kept_and_only_survivors_are_looked_at_again(
    engine: Path, tmp_path: Path
) -> None:
    first, second = targets(engine, ["harm"])
    path = tmp_path / ".cache" / "found.jsonl"
    ledger = Ledger(path)
    assert not ledger.known(first, again=False)
    ledger.add(found(first, NOTICED))
    ledger.add(found(second, SURVIVED))
    later = Ledger(path)
    assert later.known(first, again=True)
    assert later.known(second, again=False)
    assert not later.known(second, again=True)
    later.add(found(second, NOTICED))
    assert Ledger(path).known(second, again=True)


def test_the_report_names_whom_nobody_noticed(
    engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = list(targets(engine, ["harm"]))
    ledger = Ledger(tmp_path / "found.jsonl")
    ledger.add(found(chosen[0], NOTICED))
    assert report(chosen, ledger) == 0
    ledger.add(found(chosen[1], SURVIVED))
    assert report(chosen, ledger) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-3] == f"survived: {ENGINE}/harm.py:2 over: used > limit: > -> <= (3 run it)"
    assert said[-1].split() == ["harm", "2", "2", "1", "1", "0"]
