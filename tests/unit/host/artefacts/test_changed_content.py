"""What was unpacked is looked at again where it is used: nothing changed is placed or loaded."""

from pathlib import Path

import pytest

from libs.host.artefacts import installation, kernel_modules, store
from libs.host.artefacts.installation import Installation
from libs.host.tree import Tree
from tests.builders.fake_machine import FakeMachine
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.test_formats import DIGEST, KERNEL, VERSION, staged

WANTED = Installation(artefact=DIGEST, install_digest="d", label="l")


def change(root: Path, content: str) -> None:
    path = root / store.content_path(DIGEST, content).lstrip("/")
    path.write_bytes(path.read_bytes() + b"changed")


def test_a_module_that_was_changed_since_it_was_unpacked_is_not_loaded(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    index = staged(tmp_path, "deb", packing.deb(packing.modules(KERNEL, VERSION)))
    change(tmp_path, index.modules_for(KERNEL)["nvidia"].content)
    why = kernel_modules.load(machine.tree, machine, DIGEST, index, KERNEL)
    assert "is not what was unpacked there" in why
    assert "nvidia" not in (machine.tree.read_text("/proc/modules") or "")
    store.remove(machine.tree, DIGEST)
    index = staged(tmp_path, "deb", packing.deb(packing.modules(KERNEL, VERSION)))
    assert kernel_modules.load(machine.tree, machine, DIGEST, index, KERNEL) == ""


def test_a_file_that_was_changed_since_it_was_unpacked_is_not_placed(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    index = staged(tmp_path, "run", packing.run(VERSION))
    (changed,) = [each for each in index.files if each.path == "/usr/bin/nvidia-smi"]
    change(tmp_path, changed.content)
    with pytest.raises(OSError, match="is not what was unpacked there"):
        installation.place(tree, WANTED, index)
    assert not tree.exists(changed.path)
    assert installation.take_back(tree) == ()
