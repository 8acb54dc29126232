"""The init program of a driver pod: it requests admission and ends when it is admitted."""

from pathlib import Path

from libs.host import gate
from libs.host.gate import GateAnswer
from libs.host.tree import Tree
from services.driver.node.gate_program import wait_at_gate

ENVIRON = {"POD_UID": "new", "SLUICE_DRIVER_LABEL": "d-2"}


def test_the_program_ends_when_the_pod_is_admitted(tmp_path: Path) -> None:
    tree, slept, lines = Tree(tmp_path), list[float](), list[str]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if sum(slept) == 90:
            gate.put_answer(tree, GateAnswer(pod_uid="new", label="d-2", at=1.0))

    assert wait_at_gate(tree, ENVIRON, now=lambda: 7.0, sleep=sleep, log=lines.append) == 0
    assert [(each.pod_uid, each.label, each.started) for each in gate.list_requests(tree)] == [
        ("new", "d-2", 7.0)
    ]
    assert sum(slept) == 90
    assert [line for line in lines if "still waiting" in line] == [
        "still waiting after 60 s: see the log of the driver agent of this node"
    ]


def test_missing_variables_are_named(tmp_path: Path) -> None:
    lines = list[str]()
    assert wait_at_gate(Tree(tmp_path), {"POD_UID": "new"}, log=lines.append) == 2
    assert lines == ["cannot request admission: the driver pod must set SLUICE_DRIVER_LABEL"]


def test_an_unwritable_folder_is_logged_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    lines = list[str]()
    assert wait_at_gate(Tree(tmp_path), ENVIRON, log=lines.append) == 1
    assert "mount the host's folder there" in lines[0]
