"""Cached reads of a machine's files, and the writes that invalidate them."""

from pathlib import Path

from libs.host.tree import Tree
from libs.testing.machines.host_tree import CachedTree, HostTree


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


def test_a_cached_tree_equals_a_plain_tree_after_each_write_of_the_machine(tmp_path: Path) -> None:
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


def test_files_are_read_again_while_a_writer_is_open(tmp_path: Path) -> None:
    ground, tree = known(tmp_path)
    ground.put("/run/a", "1\n")
    place = tree.at("/run/a")
    for content in ("2", "3"):
        place.write_text(content)
        assert tree.word("/run/a") == content
    tree.end_writes()
    place.write_text("4")
    assert tree.word("/run/a") == "4"
