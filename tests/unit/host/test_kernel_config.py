"""The options of a kernel, from the files in which NFD looks for them."""

import gzip
import os
from pathlib import Path

import pytest

from libs.host.kernel_config import options
from libs.host.tree import Tree, Unreadable
from tests.builders.machine_files import put, tree

RELEASE = "6.8.0-48-generic"
NAMES = ("NO_HZ", "PREEMPT")
PATHS = (
    f"/usr/src/linux-{RELEASE}/.config",
    "/usr/src/linux/.config",
    f"/usr/lib/modules/{RELEASE}/config",
    f"/usr/lib/ostree-boot/config-{RELEASE}",
    f"/usr/lib/kernel/config-{RELEASE}",
    f"/usr/src/linux-headers-{RELEASE}/.config",
    f"/lib/modules/{RELEASE}/build/.config",
    f"/boot/config-{RELEASE}",
)
"""In order."""


def compress(root: Path, text: str) -> bytes:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    data = gzip.compress(text.encode())
    (root / "proc/config.gz").write_bytes(data)
    return data


def test_the_first_file_of_nfd_counts(tmp_path: Path) -> None:
    assert options(Tree(tmp_path), RELEASE, NAMES) == {}
    for number, path in reversed(list(enumerate(PATHS))):
        put(tmp_path, path, f'CONFIG_NO_HZ="{number}"\nNO_HZ=no\n# CONFIG_PREEMPT is not set\n')
        assert options(Tree(tmp_path), RELEASE, NAMES) == {"NO_HZ": str(number)}
    compress(tmp_path, "CONFIG_NO_HZ=y\nCONFIG_PREEMPT=y\nCONFIG_OTHER=y\n")
    assert options(Tree(tmp_path), RELEASE, NAMES) == {"NO_HZ": "y", "PREEMPT": "y"}


def test_a_file_that_cannot_be_read_is_passed_over_for_another_one(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    os.mkfifo(tmp_path / f"boot/config-{RELEASE}")
    with pytest.raises(Unreadable, match="/boot/config-6"):
        options(Tree(tmp_path), RELEASE, NAMES)
    put(tmp_path, PATHS[1], "CONFIG_NO_HZ=y\n")
    assert options(Tree(tmp_path), RELEASE, NAMES) == {"NO_HZ": "y"}


def test_a_compressed_file_that_is_none_or_too_large_is_not_used(tmp_path: Path) -> None:
    data = compress(tmp_path, "CONFIG_NO_HZ=y\n" + "#" * (5 << 20))
    with pytest.raises(Unreadable, match="unpacks to more than 4 MiB"):
        options(Tree(tmp_path), RELEASE, NAMES)
    for bad in (data[:100], b"not compressed"):
        (tmp_path / "proc/config.gz").write_bytes(bad)
        with pytest.raises(Unreadable, match=r"/proc/config\.gz"):
            options(Tree(tmp_path), RELEASE, NAMES)


def test_a_value_too_long_for_a_label_is_left_out(tmp_path: Path) -> None:
    text = f"CONFIG_NO_HZ={'y' * 64}\nCONFIG_PREEMPT={'y' * 63}\n"
    assert options(tree(tmp_path, {PATHS[1]: text}), RELEASE, NAMES) == {"PREEMPT": "y" * 63}
