import struct

import pytest

from libs.host.ldcache import CachedLibrary, MalformedCache, parse
from tests.unit.host.cdi.drivers import ENTRY, HEADER, OLD_ENTRY, loader_cache

CUDA = ("libcuda.so.1", "/usr/lib64/libcuda.so.1")
ML = ("libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1")


def test_libraries_of_64_bits_are_read() -> None:
    both = loader_cache((CUDA, ML))
    assert parse(both) == (CachedLibrary(*CUDA), CachedLibrary(*ML))
    assert parse(loader_cache((CUDA,), flags=0x0A03)) == (CachedLibrary(*CUDA),)
    assert parse(loader_cache((CUDA,), flags=0x0003)) == ()
    assert parse(loader_cache(())) == ()


def test_a_cache_may_begin_with_the_old_format() -> None:
    old = b"ld.so-1.7.0\0" + struct.pack("=I", 1) + OLD_ENTRY.pack(1, 0, 4) + b"a\0/a\0"
    assert parse(old + loader_cache((CUDA,))) == (CachedLibrary(*CUDA),)
    with pytest.raises(MalformedCache, match="does not begin"):
        parse(old)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "does not begin"),
        (b"ELF", "does not begin"),
        (b"glibc-ld.so.cache1.1", "shorter than its header"),
        (HEADER.pack(b"glibc-ld.so.cache1.1", 1, 0), "too short for the 1 libraries"),
        (HEADER.pack(b"glibc-ld.so.cache1.1", 2**32 - 1, 0), "too short for the 4294967295"),
        (
            HEADER.pack(b"glibc-ld.so.cache1.1", 1, 0) + ENTRY.pack(0x0303, 2**32 - 1, 0, 0, 0),
            "no text at byte 4294967295",
        ),
        (loader_cache((CUDA,))[:-1], "no text at byte"),
        (loader_cache((("a" * 5000, "/a"),)), "no text at byte"),
        (loader_cache((("libcuda.so.1", "relative"),)), "no absolute path"),
        (loader_cache((("../libcuda.so.1", "/a"),)), "no absolute path"),
        (loader_cache((("", "/a"),)), "no absolute path"),
        (loader_cache((("lib\nx", "/a"),)), "cannot be printed"),
        (loader_cache((CUDA,)).replace(b"libcuda.so.1\0", b"\xff" * 12 + b"\0"), "not UTF-8"),
    ],
)
def test_a_broken_cache_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedCache, match=problem):
        parse(data)


def test_no_cache_that_was_cut_or_changed_crashes() -> None:
    data = loader_cache((CUDA, ML))
    outcomes = {"read": 0, "refused": 0}
    changed = [data[:end] for end in range(len(data))]
    changed += [data[:i] + bytes((data[i] ^ 0xFF,)) + data[i + 1 :] for i in range(len(data))]
    for each in changed:
        try:
            parse(each)
        except MalformedCache:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert outcomes["refused"] > len(data)
    assert sum(outcomes.values()) == 2 * len(data)
