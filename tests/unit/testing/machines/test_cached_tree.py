"""Cached reads of a machine's files, and the writes that invalidate them."""

from pathlib import Path

from libs.host.tree import Tree
from libs.testing.machines.host_tree import CachedTree, HostTree


def trees(root: Path) -> tuple[HostTree, CachedTree]:
    files, tree = HostTree(root), CachedTree(Tree(root))
    files.on_write = tree.invalidate
    return files, tree


def read_all(tree: Tree) -> tuple[object, ...]:
    """Return the results of all reads of a tree."""
    return (
        tree.read_text("/run/a"),
        tree.data("/run/link/a"),
        tree.word("/run/a"),
        tree.names("/run"),
        tree.exists("/run/a"),
        tree.link("/run/link"),
        tree.modified_at("/run/a"),
    )


def test_a_cached_tree_equals_a_plain_tree_after_each_write_of_the_machine(tmp_path: Path) -> None:
    files, tree = trees(tmp_path)
    for write in (
        lambda: files.put("/run/a", "1\n"),
        lambda: files.link("/run/link", "/run"),
        lambda: files.put("/run/a", "2\n"),
        lambda: files.set_mtime("/run/a", 12.5),
        lambda: files.make_folder("/run/b"),
        lambda: files.break_below("/run"),
        lambda: files.repair_below("/run"),
        lambda: files.remove("/run/a"),
        lambda: files.empty("/run"),
    ):
        write()
        assert read_all(tree) == read_all(tree) == read_all(Tree(tmp_path))


def test_a_write_through_the_tree_is_read_at_once(tmp_path: Path) -> None:
    _, tree = trees(tmp_path)
    assert tree.word("/run/a") is None
    for content in (b"2", b"3"):
        tree.write("/run/a", content)
        assert tree.word("/run/a") == content.decode()
    tree.remove("/run/a")
    assert not tree.exists("/run/a")
