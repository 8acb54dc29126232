"""The demo's machines: the same ones for a seed, and a driver that loads nowhere if one says so."""

from pathlib import Path

from demo.world import demo_world

LABEL = "27106d33257c983977bdb963b5a30ce5"


def test_a_driver_that_is_named_loads_nowhere_and_all_others_do(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    there = demo_world(3, bad=bad)
    usual = there.load("node-1", LABEL, 0)
    assert usual.exit_code == 0
    bad.write_text(f"{LABEL}\n")
    assert there.load("node-1", LABEL, 0) == type(usual)(usual.after, exit_code=1)
    assert there.load("node-2", LABEL, 5).exit_code == 1
    assert there.load("node-1", "another", 0).exit_code == 0


def test_a_seed_makes_the_same_machines_again(tmp_path: Path) -> None:
    loads = [demo_world(seed, bad=tmp_path / "no").load("node-1", LABEL, 0) for seed in (1, 1, 2)]
    assert loads[0] == loads[1] != loads[2]
