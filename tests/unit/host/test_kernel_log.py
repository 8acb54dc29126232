"""The kernel log: which lines are errors of GPUs, and that each is read once."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libs.host import kernel_log
from libs.host.kernel_log import KernelLog, Record, SwitchError, Xid, parse, slot_of
from libs.host.tree import Tree


def record(text: str, *, sequence: int = 7, level: int = 4, more: str = "") -> bytes:
    return f"{level},{sequence},5500000,-;{text}\n{more}".encode()


def error_in(text: str, *, level: int = 4) -> Xid | SwitchError | None:
    found = parse(record(text, level=level))
    assert found is not None
    assert found.sequence == 7
    return found.error


@pytest.mark.parametrize(
    ("text", "slot", "code"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=1, name=a, GPU has fallen off", "0000:41:00", 79),
        ("NVRM: Xid (PCI:0000:c1:00): 31, Ch 00000008", "0000:c1:00", 31),
        ("NVRM: Xid (PCI:0000:C1:00.0): 48, x", "0000:c1:00", 48),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", 14),
        ("NVRM: Xid (PCI:00000000:03:00): 119", "0000:03:00", 119),
    ],
)
def test_an_xid_is_recognized(text: str, slot: str, code: int) -> None:
    assert error_in(text) == Xid(slot, code, 5.5)


def test_an_xid_of_a_mig_instance_names_it() -> None:
    text = "NVRM: Xid (PCI:0009:01:00 GPU-I:05): 43, pid=2"
    assert error_in(text) == Xid("0009:01:00", 43, 5.5, gpu_instance=5)
    assert error_in(text.replace("05", "5000")) == Xid("0009:01:00", 43, 5.5)


@pytest.mark.parametrize("severity", ["Fatal", "Non-fatal"])
def test_an_sxid_is_recognized_by_its_first_line(severity: str) -> None:
    first = f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, {severity}, Link 30 LTSSM Fault Up"
    assert error_in(first) == SwitchError(
        "0000:c1:00", 20034, severity == "Fatal", "Link 30 LTSSM Fault Up", 5.5
    )
    assert error_in("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Severity 0 Engine") is None
    assert error_in("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Data {0x1}") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "usb 1-1: NVRM: Xid (PCI:0000:41:00): 79, no line of the driver",
        "NVRM: Xid (PCI:0000:41:00): , none",
        "NVRM: Xid (PCI:41:00): 79, short",
        "NVRM: Xid (PCI:0000:41:00): 1234567, too long",
        "NVRM: GPU at PCI:0000:41:00: GPU-5d0a1c9e",
        "nvidia-nvswitch: SXid (PCI:0000:c1:00.0): 20034, Fatal, no number",
    ],
)
def test_other_lines_are_no_errors(text: str) -> None:
    assert error_in(text) is None


@pytest.mark.parametrize("level", [8, 12, 13, 99])
def test_a_line_that_a_process_wrote_is_no_error(level: int) -> None:
    assert error_in("NVRM: Xid (PCI:0000:41:00): 79, false", level=level) is None


@pytest.mark.parametrize("level", range(8))
def test_a_line_of_the_kernel_is_one_at_every_level(level: int) -> None:
    assert error_in("NVRM: Xid (PCI:0000:41:00): 79, true", level=level) is not None


def test_what_follows_a_line_belongs_to_it() -> None:
    data = record("NVRM: x", more=" SUBSYSTEM=pci\n DEVICE=+pci:NVRM: Xid (PCI:0000:41:00): 79\n")
    assert parse(data) == Record(7, None)


@pytest.mark.parametrize("data", [b"", b"no record", b"4,7;x", b"4,7,x,-;x", b"\xff" * 99])
def test_what_is_no_record_is_none(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize(
    ("address", "slot"),
    [
        ("00000000:C1:00.0", "0000:c1:00"),
        ("0000:c1:00", "0000:c1:00"),
        ("00010002:0A:1F.7", "10002:0a:1f"),
    ],
)
def test_a_slot_has_one_spelling(address: str, slot: str) -> None:
    assert slot_of(address) == slot


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[[bytes], object]]:
    """Write to a log that, like the kernel's, gives out one record per read."""
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    file = os.open(tmp_path / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT)
    yield lambda data: os.write(file, data)
    os.close(file)


def xid(sequence: int) -> bytes:
    return record("NVRM: Xid (PCI:0000:41:00): 79, x", sequence=sequence)


def test_each_error_is_read_once_and_reading_never_waits(
    tmp_path: Path, write: Callable[[bytes], object]
) -> None:
    log = KernelLog(Tree(tmp_path), after=9)
    assert log.read() == []
    for sequence in (10, 11):
        write(xid(sequence))
    write(record("other", sequence=12))
    write(b"no record")
    assert len(log.read()) == 2
    assert log.read() == []
    assert (log.sequence, log.missed) == (12, 0)
    log.close()


def test_reading_goes_on_after_the_last_record_of_an_earlier_run(
    tmp_path: Path, write: Callable[[bytes], object]
) -> None:
    for sequence in range(5, 9):
        write(xid(sequence))
    log = KernelLog(Tree(tmp_path), after=6)
    assert len(log.read()) == 2
    assert (log.sequence, log.missed) == (8, 0)
    write(xid(12))
    assert len(log.read()) == 1
    assert (log.sequence, log.missed) == (12, 3)
    log.close()


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 236",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
    ],
)
def test_a_log_is_read_from_its_begin_but_errors_of_an_earlier_load_are_none(
    tmp_path: Path, write: Callable[[bytes], object], text: str
) -> None:
    log = KernelLog(Tree(tmp_path))
    write(xid(5))
    assert len(log.read()) == 1
    write(xid(6))
    write(record(text, sequence=7))
    write(xid(8))
    write(record(text, sequence=9, level=12))
    assert len(log.read()) == 1
    assert (log.loads, log.last_error, log.sequence) == (1, 8, 9)
    log.close()


def test_records_that_were_overwritten_are_skipped_and_counted(
    tmp_path: Path, write: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, results = os.read, [OSError(errno.EPIPE, "overwritten")]

    def overwritten(file: int, size: int) -> bytes:
        if results:
            raise results.pop()
        return read(file, size)

    log = KernelLog(Tree(tmp_path), after=3)
    write(xid(40))
    monkeypatch.setattr(kernel_log.os, "read", overwritten)
    assert len(log.read()) == 1
    assert log.missed == 36
    log.close()


def test_a_log_that_is_missing_or_fails_raises_and_is_opened_again(
    tmp_path: Path, write: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match="/dev/kmsg"):
        KernelLog(Tree(tmp_path / "dev"), after=0).read()
    log = KernelLog(Tree(tmp_path), after=0)
    with monkeypatch.context() as patch:
        patch.setattr(kernel_log.os, "read", refuse)
        with pytest.raises(PermissionError):
            log.read()
    write(xid(1))
    assert len(log.read()) == 1
    log.close()


def refuse(_file: int, _size: int) -> bytes:
    raise PermissionError(errno.EPERM, "not permitted")


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="the kernel log is not readable")
def test_the_real_log_is_read_from_its_begin_or_from_a_record_on() -> None:
    first = KernelLog(Tree("/"))
    first.read()
    assert (first.sequence or 0) > 0
    later = KernelLog(Tree("/"), after=first.sequence)
    assert later.read() == []
    for log in (first, later):
        log.close()
