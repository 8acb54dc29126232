from pathlib import Path

import pytest

from libs.host import gate
from libs.host.gate import GateAnswer, GateRequest
from libs.host.tree import Tree

OLD = GateRequest(pod_uid="old", label="d-1", started=10.0)
NEW = GateRequest(pod_uid="new", label="d-2", started=20.0)


def test_nobody_stands_at_a_gate_that_is_not_there(tmp_path: Path) -> None:
    assert gate.list_requests(Tree(tmp_path)) == ()
    assert gate.list_answers(Tree(tmp_path)) == ()
    assert not gate.is_open(Tree(tmp_path), OLD)


def test_who_asks_is_seen_in_the_order_of_asking(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, NEW)
    gate.put_request(machine, OLD)
    assert gate.list_requests(machine) == (OLD, NEW)


def test_who_asks_again_asks_once(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, OLD)
    again = GateRequest(pod_uid="old", label="d-1", started=30.0)
    gate.put_request(machine, again)
    assert gate.list_requests(machine) == (again,)


def test_an_answer_opens_for_its_pod_alone(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, OLD)
    gate.put_request(machine, NEW)
    answer = GateAnswer(pod_uid="new", label="d-2", at=21.0)
    gate.put_answer(machine, answer)
    assert gate.is_open(machine, NEW)
    assert not gate.is_open(machine, OLD)
    assert gate.list_answers(machine) == (answer,)


def test_an_answer_for_another_label_opens_nothing(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-1", at=21.0))
    assert not gate.is_open(machine, NEW)


@pytest.mark.parametrize(
    "content", ["", "{", '{"pod_uid": "other", "label": "d-2", "at": 1}', "[]"]
)
def test_a_file_that_says_nothing_clear_opens_nothing(tmp_path: Path, content: str) -> None:
    machine = Tree(tmp_path)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-2", at=21.0))
    machine.at(f"{gate.ANSWERS}/new").write_text(content)
    assert not gate.is_open(machine, NEW)
    assert gate.list_answers(machine) == ()


def test_a_write_that_was_cut_off_leaves_what_was_there(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-2", at=21.0))
    machine.at(f"{gate.ANSWERS}/.new").write_text('{"pod_u')
    assert gate.is_open(machine, NEW)
    assert [one.pod_uid for one in gate.list_answers(machine)] == ["new"]


def test_a_pod_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, NEW)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-2", at=21.0))
    gate.remove_pod(machine, "new")
    gate.remove_pod(machine, "new")
    assert gate.list_requests(machine) == ()
    assert gate.list_answers(machine) == ()


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", ".hidden"])
def test_no_file_is_named_by_what_is_no_uid(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="not a pod uid"):
        gate.put_request(Tree(tmp_path), GateRequest(pod_uid=uid, label="", started=0.0))
    with pytest.raises(ValueError, match="not a pod uid"):
        gate.remove_pod(Tree(tmp_path), uid)
