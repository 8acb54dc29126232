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
    assert (info.depends, info.version) == (("nvidia", "drm_kms"), "580.95.05")
    assert info.signed


def test_a_signature_counts_at_the_end_only() -> None:
    assert not read(CONTENT, 100).signed
    assert not read(CONTENT + SIGNED + b"more", 100).signed


@pytest.mark.parametrize("version", ["", "of others", "1", "580.95.05-rc1"])
def test_what_is_no_version_of_a_driver_is_left_out(version: str) -> None:
    assert read(module_file("nvidia", version), 100).version == ""
