from pathlib import Path

import pytest

from libs.host import gate
from libs.host.gate import GateAnswer, GateRequest
from libs.host.tree import Tree
from tests.builders.machine_files import put

OLD = GateRequest(pod_uid="old", label="d-1", started=10.0)
NEW = GateRequest(pod_uid="new", label="d-2", started=20.0)


def test_a_missing_folder_has_no_requests_or_answers(tmp_path: Path) -> None:
    assert gate.list_requests(Tree(tmp_path)) == ()
    assert gate.list_answers(Tree(tmp_path)) == ()
    assert not gate.is_open(Tree(tmp_path), OLD)


def test_requests_are_listed_oldest_first(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, NEW)
    gate.put_request(machine, OLD)
    assert gate.list_requests(machine) == (OLD, NEW)


def test_a_new_request_of_a_pod_replaces_the_old_one(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, OLD)
    again = GateRequest(pod_uid="old", label="d-1", started=30.0)
    gate.put_request(machine, again)
    assert gate.list_requests(machine) == (again,)


def test_an_answer_opens_the_gate_for_its_pod_only(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, OLD)
    gate.put_request(machine, NEW)
    answer = GateAnswer(pod_uid="new", label="d-2", at=21.0)
    gate.put_answer(machine, answer)
    assert gate.is_open(machine, NEW)
    assert not gate.is_open(machine, OLD)
    assert gate.list_answers(machine) == (answer,)


def test_an_answer_with_another_label_does_not_open_the_gate(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-1", at=21.0))
    assert not gate.is_open(machine, NEW)


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"pod_uid": "other", "label": "d-2", "at": 1}', "[]", "[" * 100_000, "\udcff"],
    ids=["empty", "truncated", "of another pod", "a list", "deep", "not UTF-8"],
)
def test_a_malformed_answer_does_not_open_the_gate(tmp_path: Path, content: str) -> None:
    machine = Tree(tmp_path)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-2", at=21.0))
    put(tmp_path, f"{gate.ANSWERS}/new", content)
    assert not gate.is_open(machine, NEW)
    assert gate.list_answers(machine) == ()


def test_an_interrupted_write_leaves_the_old_answer(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-2", at=21.0))
    put(tmp_path, f"{gate.ANSWERS}/.new.unfinished", '{"pod_u')
    assert gate.is_open(machine, NEW)
    assert [answer.pod_uid for answer in gate.list_answers(machine)] == ["new"]


def test_removing_a_pod_removes_its_request_and_answer(tmp_path: Path) -> None:
    machine = Tree(tmp_path)
    gate.put_request(machine, NEW)
    gate.put_answer(machine, GateAnswer(pod_uid="new", label="d-2", at=21.0))
    gate.remove_pod(machine, "new")
    gate.remove_pod(machine, "new")
    assert gate.list_requests(machine) == ()
    assert gate.list_answers(machine) == ()


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", ".hidden"])
def test_an_invalid_uid_is_refused(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="not a pod uid"):
        gate.put_request(Tree(tmp_path), GateRequest(pod_uid=uid, label="", started=0.0))
    with pytest.raises(ValueError, match="not a pod uid"):
        gate.remove_pod(Tree(tmp_path), uid)
