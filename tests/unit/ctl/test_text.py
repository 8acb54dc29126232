"""Times, durations and versions as people write and read them."""

import msgspec
import pytest

from libs.ctl.observe.objects import DaemonSet
from libs.ctl.text import (
    cut_words,
    moment,
    parse_duration,
    parse_time,
)
from libs.ctl.versions import versions_of
from libs.fleet.names import name_versions, version_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90m", 5400.0), ("1h30m", 5400.0), ("2 h", 7200.0), ("45s", 45.0), ("1.5d", 129_600.0)],
)
def test_durations_are_read(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "5", "2h later", "h", "-2h", "\u0663h", f"{'9' * 400}d", "36501d"]
)
def test_other_texts_are_no_durations(text: str) -> None:
    assert parse_duration(text) is None


def test_a_word_that_nobody_reads_to_its_end_is_cut() -> None:
    kept = f"{'a' * 200} {'/b' * 90}"
    assert cut_words(kept) == kept
    assert cut_words(f"no {'a' * 5000}, but b") == f"no {'a' * 199}… but b"


def test_times_are_iso_8601() -> None:
    assert parse_time("2027-01-15T08:00:00+00:00") == 1_800_000_000.0
    assert parse_time("tomorrow") is None
    assert parse_time("0001-01-01") is None


def test_the_date_of_today_is_left_out() -> None:
    morning = 1_800_000_000.0
    assert moment(morning, morning + 3_600) == "08:00:00Z"
    assert moment(morning, morning + 86_400) == "2027-01-15 08:00:00Z"


def test_a_driver_is_named_by_its_target_and_by_its_build() -> None:
    container = {"name": "nvidia-driver-ctr", "image": "r/driver:580.95.05-ubuntu22.04"}
    made = msgspec.convert(
        {
            "metadata": {
                "name": "sluice-driver",
                "annotations": {"sluice.dev/target": "a" * 32},
                "labels": {
                    "sluice.dev/driver": "b" * 32,
                    "nvidia.com/node.os-version": "ubuntu22.04",
                },
            },
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
        DaemonSet,
    )
    found = versions_of([("c" * 32, "570.1"), ("a" * 32, "580.1")], [made])
    assert found == {"a" * 32: "580.1", "b" * 32: "580.95.05", "c" * 32: "570.1"}


def test_digests_become_versions() -> None:
    known, unknown = "a" * 32, "b" * 32
    versions = {known: "580.95.05"}
    assert name_versions(f"{known}, {unknown}, {'a' * 33}", versions) == (
        f"580.95.05, bbbbbbbb, {'a' * 33}"
    )
    pod = f"pod gpu-operator/sluice-driver-{known}-w2nhx"
    assert name_versions(pod, versions) == pod
    assert version_name(known, versions) == "580.95.05"
    assert version_name(unknown, versions) == "bbbbbbbb"
