"""Files that are read once: what everybody who may write does to what was read."""

from pathlib import Path

import pytest

from libs.host import gate, modules
from libs.host.gate import GateAnswer
from libs.host.machine import InlineOffload
from libs.host.tree import Tree
from libs.testing.machines.cached_tree import CachedTree
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.system import System
from libs.testing.simulation import Sim, run
from tests.unit.testing.machines.builders import machine

DRIVEN = System(driver="580.95.05")


def known(root: Path) -> tuple[HostTree, CachedTree]:
    ground, tree = HostTree(root), CachedTree(Tree(root))
    ground.on_write = tree.invalidate
    return ground, tree


def seen(tree: Tree) -> tuple[object, ...]:
    """All that can be asked of a tree."""
    return (
        tree.text("/run/a"),
        tree.data("/run/link/a"),
        tree.word("/run/a"),
        tree.names("/run"),
        tree.exists("/run/a"),
        tree.link("/run/link"),
        tree.modified_at("/run/a"),
    )


def test_it_says_what_a_plain_tree_says_after_each_write_of_the_machine(tmp_path: Path) -> None:
    ground, tree = known(tmp_path)
    for write in (
        lambda: ground.put("/run/a", "1\n"),
        lambda: ground.link("/run/link", "/run"),
        lambda: ground.put("/run/a", "2\n"),
        lambda: ground.set_mtime("/run/a", 12.5),
        lambda: ground.make_folder("/run/b"),
        lambda: ground.break_below("/run"),
        lambda: ground.repair_below("/run"),
        lambda: ground.remove("/run/a"),
        lambda: ground.empty("/run"),
    ):
        write()
        assert seen(tree) == seen(tree) == seen(Tree(tmp_path))


def test_a_file_is_read_once(tmp_path: Path) -> None:
    ground, tree = known(tmp_path)
    ground.put("/run/a", "1\n")
    assert tree.word("/run/a") == "1"
    (tmp_path / "run/a").write_text("by somebody of whom it does not know")
    assert tree.word("/run/a") == "1"


def test_while_somebody_may_write_everything_is_read_anew(tmp_path: Path) -> None:
    ground, tree = known(tmp_path)
    ground.put("/run/a", "1\n")
    place = tree.at("/run/a")
    for content in ("2", "3"):
        place.write_text(content)
        assert tree.word("/run/a") == content
    tree.end_writes()
    place.write_text("4")
    assert tree.word("/run/a") == "4"


@pytest.mark.parametrize("remembers", [True, False])
def test_an_agent_sees_what_another_one_and_the_kernel_did(tmp_path: Path, remembers: bool) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, system=DRIVEN, cache_reads=remembers)
        one, other = (
            there.host(InlineOffload(), changes=True),
            there.host(InlineOffload(), comm="other"),
        )
        assert gate.list_answers(other.tree) == ()
        answer = GateAnswer(pod_uid="p", label="l", at=1.0)
        await one.offload.do(lambda: gate.put_answer(one.tree, answer))
        assert gate.list_answers(other.tree) == (answer,)
        await one.offload.do(lambda: gate.remove_pod(one.tree, "p"))
        assert gate.list_answers(other.tree) == ()
        assert modules.DRIVER in modules.loaded(other.tree)
        linux = one.linux
        assert linux is not None
        for name in modules.UNLOAD_ORDER:
            await one.offload.do(lambda name=name: linux.unload(name))
        assert modules.DRIVER not in modules.loaded(other.tree)

    run(main, seed=1)
