"""What the file of a kernel module says of itself."""

import pytest

from libs.host.artefacts.module_info import ModuleInfo
from libs.testing.module_files import module_file

SIGNED = b"~Module signature appended~\n"
CONTENT = module_file("nvidia_uvm", "580.95.05", "nvidia", "drm-kms")


def read(content: bytes, size: int) -> ModuleInfo:
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    info = ModuleInfo(chunks)
    assert b"".join(info) == content
    return info


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_fields_and_signature_are_found_wherever_the_content_is_cut(size: int) -> None:
    info = read(CONTENT + b"\xff" * 5000 + SIGNED, size)
    assert (info.name, info.depends) == ("nvidia_uvm", ("nvidia", "drm_kms"))
    assert info.version == "580.95.05"
    assert info.signed


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\0vermagic=5.4.0 SMP \0name=nvidia\0depends=\0", "nvidia"),
        (b"\0name=nvidia-peermem\0vermagic=6.1.0 SMP \0", "nvidia_peermem"),
        (CONTENT + b"\0name=of a format string\0name=%s\0name=other\0", "nvidia_uvm"),
        (b"\0name=other\0", ""),
        (b"\0name=../../etc\0vermagic=6.1.0 SMP \0", ""),
    ],
)
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_the_name_is_the_field_beside_that_of_the_kernel(
    content: bytes, name: str, size: int
) -> None:
    assert read(content, size).name == name


def test_a_signature_counts_at_the_end_only() -> None:
    assert not read(CONTENT, 100).signed
    assert not read(CONTENT + SIGNED + b"more", 100).signed


@pytest.mark.parametrize("version", ["", "of others", "1", "580.95.05-rc1"])
def test_what_is_no_version_of_a_driver_is_left_out(version: str) -> None:
    assert read(module_file("nvidia", version), 100).version == ""
