"""Which modules an artefact has: what their files say counts, not how these are called."""

import lzma
from pathlib import Path

import pytest

from libs.host.artefacts.members import ArtefactError
from libs.testing.module_files import module_file
from tests.unit.host.artefacts import packing
from tests.unit.host.artefacts.test_formats import KERNEL, VERSION, staged


def test_a_module_has_the_name_that_it_says_not_that_of_its_file(tmp_path: Path) -> None:
    """DKMS on Debian names the files nvidia-current.ko; the kernel lists the module nvidia."""
    folder = f"/lib/modules/{KERNEL}/updates/dkms"
    files = {
        f"{folder}/nvidia-current.ko": module_file("nvidia", VERSION),
        f"{folder}/nvidia-current-uvm.ko.xz": lzma.compress(
            module_file("nvidia-uvm", VERSION, "nvidia")
        ),
        f"{folder}/nvidia-modeset.ko": b"\x7fELF that says nothing",
    }
    own = staged(tmp_path, "tar", packing.tar(files)).modules_for(KERNEL)
    assert {name: each.depends for name, each in own.items()} == {
        "nvidia": (),
        "nvidia_uvm": ("nvidia",),
        "nvidia_modeset": (),
    }


def test_two_files_of_one_module_are_refused(tmp_path: Path) -> None:
    folder = f"/lib/modules/{KERNEL}/updates/dkms"
    files = {
        f"{folder}/nvidia-current.ko": module_file("nvidia", VERSION),
        f"{folder}/nvidia.ko": module_file("nvidia", VERSION),
    }
    why = f"{folder}/nvidia.ko is one more module nvidia for kernel {KERNEL}"
    with pytest.raises(ArtefactError, match=why):
        staged(tmp_path, "tar", packing.tar(files))
