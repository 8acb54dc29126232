from pathlib import Path

import pytest

from libs.host import gate
from libs.host.gate import Answer, Asking
from libs.host.tree import Tree

OLD = Asking(pod_uid="old", label="d-1", started=10.0)
NEW = Asking(pod_uid="new", label="d-2", started=20.0)


def test_nobody_stands_at_a_gate_that_is_not_there(tmp_path: Path) -> None:
    assert gate.asked(Tree(tmp_path)) == ()
    assert gate.answered(Tree(tmp_path)) == ()
    assert not gate.is_open(Tree(tmp_path), OLD)


def test_who_asks_is_seen_in_the_order_of_asking(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.ask(machine, NEW)
    gate.ask(machine, OLD)
    assert gate.asked(machine) == (OLD, NEW)


def test_who_asks_again_asks_once(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.ask(machine, OLD)
    again = Asking(pod_uid="old", label="d-1", started=30.0)
    gate.ask(machine, again)
    assert gate.asked(machine) == (again,)


def test_an_answer_opens_for_its_pod_alone(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.ask(machine, OLD)
    gate.ask(machine, NEW)
    answer = Answer(pod_uid="new", label="d-2", at=21.0)
    gate.answer(machine, answer)
    assert gate.is_open(machine, NEW)
    assert not gate.is_open(machine, OLD)
    assert gate.answered(machine) == (answer,)


def test_an_answer_for_another_label_opens_nothing(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.answer(machine, Answer(pod_uid="new", label="d-1", at=21.0))
    assert not gate.is_open(machine, NEW)


@pytest.mark.parametrize(
    "content", ["", "{", '{"pod_uid": "other", "label": "d-2", "at": 1}', "[]"]
)
def test_a_file_that_says_nothing_clear_opens_nothing(tmp_path: Path, content: str) -> None:
    machine = Tree(tmp_path)
    gate.answer(machine, Answer(pod_uid="new", label="d-2", at=21.0))
    machine.at(f"{gate.ANSWERS}/new").write_text(content)
    assert not gate.is_open(machine, NEW)
    assert gate.answered(machine) == ()


def test_a_write_that_was_cut_off_leaves_what_was_there(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.answer(machine, Answer(pod_uid="new", label="d-2", at=21.0))
    machine.at(f"{gate.ANSWERS}/.new").write_text('{"pod_u')
    assert gate.is_open(machine, NEW)
    assert [one.pod_uid for one in gate.answered(machine)] == ["new"]


def test_a_pod_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.ask(machine, NEW)
    gate.answer(machine, Answer(pod_uid="new", label="d-2", at=21.0))
    gate.forget(machine, "new")
    gate.forget(machine, "new")
    assert gate.asked(machine) == ()
    assert gate.answered(machine) == ()


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", ".hidden"])
def test_no_file_is_named_by_what_is_no_uid(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="no uid of a pod"):
        gate.ask(Tree(tmp_path), Asking(pod_uid=uid, label="", started=0.0))
    with pytest.raises(ValueError, match="no uid of a pod"):
        gate.forget(Tree(tmp_path), uid)
