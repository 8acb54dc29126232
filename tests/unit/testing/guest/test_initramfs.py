"""The first file system of the guest."""

import shlex
from collections.abc import Iterator

from libs.testing.guest import initramfs


def test_kernel_modules_are_loaded_after_those_they_depend_on() -> None:
    contents = {
        "9p": b"\0license=GPL\0depends=9pnet,netfs\0",
        "9pnet": b"\0depends=\0",
        "9pnet_virtio": b"\0depends=9pnet,virtio-ring,built_in\0",
        "netfs": b"\0depends=\0",
        "unwanted": b"\0depends=9p\0",
        "virtio_ring": b"no word of others",
    }
    assert initramfs.in_order(["9pnet_virtio", "9p"], contents) == (
        *("9pnet", "virtio_ring", "9pnet_virtio"),
        *("netfs", "9p"),
    )


def test_the_archive_has_programs_folders_and_a_console() -> None:
    data = initramfs.archive({"init": b"#!\n", "bin/busybox": b"\x7fELF!"})
    found = dict(_entries(data))
    assert found["init"] == (0o100755, b"#!\n")
    assert found["bin/busybox"] == (0o100755, b"\x7fELF!")
    assert found["root"] == (0o040755, b"")
    assert found["dev/console"] == (0o020600, b"")
    assert list(found)[-1] == "TRAILER!!!"
    assert len(data) % 4 == 0


def test_the_first_program_becomes_the_command() -> None:
    last = initramfs.init(["9p"], ["env", "A=with space", "python"]).splitlines()[-1]
    assert shlex.split(last) == [
        *("exec", "busybox", "switch_root", "/root"),
        *("env", "A=with space", "python"),
    ]


def _entries(data: bytes) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Read an archive as the kernel does: headers and contents begin at multiples of four."""
    at = 0
    while at < len(data):
        assert data[at : at + 6] == b"070701"
        values = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name_end = at + 110 + values[11]
        content = name_end + -name_end % 4
        name = data[at + 110 : name_end - 1].decode()
        yield name, (values[1], data[content : content + values[6]])
        at = content + values[6]
        at += -at % 4
