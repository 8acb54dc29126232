"""The world of the demo: bad drivers fail to load."""

from pathlib import Path

from demo.simulator import demo_world

LABEL = "27106d33257c983977bdb963b5a30ce5"


def test_only_bad_drivers_fail_to_load(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    world = demo_world(3, bad=bad)
    usual = world.load("node-1", LABEL, 0)
    assert usual.exit_code == 0
    bad.write_text(f"{LABEL}\n")
    assert world.load("node-1", LABEL, 0) == type(usual)(usual.after, exit_code=1)
    assert world.load("node-2", LABEL, 5).exit_code == 1
    assert world.load("node-1", "another", 0).exit_code == 0
