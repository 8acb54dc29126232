"""Times in words: where the figures change, and what stands there when there is no time."""

import pytest

from libs.kube.times import parse_time
from libs.testing.apiserver.printers.durations import duration as words
from libs.testing.apiserver.printers.durations import since

S, M, H, D, Y = 1, 60, 3600, 86_400, 365 * 86_400


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-2.0, "<invalid>"),
        (-1.9, "0s"),
        (0.0, "0s"),
        (119.9, "119s"),
        (2 * M, "2m"),
        (5 * M + 30, "5m30s"),
        (10 * M - 1, "9m59s"),
        (10 * M + 59, "10m"),
        (3 * H - 1, "179m"),
        (3 * H, "3h"),
        (3 * H + 5 * M + 59, "3h5m"),
        (8 * H - 1, "7h59m"),
        (8 * H + 59 * M, "8h"),
        (2 * D - 1, "47h"),
        (2 * D, "2d"),
        (2 * D + 4 * H + 59 * M, "2d4h"),
        (8 * D - 1, "7d23h"),
        (45 * D + 23 * H, "45d"),
        (2 * Y - 1, "729d"),
        (2 * Y, "2y"),
        (3 * Y + 20 * D + 5 * H, "3y20d"),
        (8 * Y + 200 * D, "8y"),
    ],
)
def test_words(seconds: float, expected: str) -> None:
    assert words(seconds) == expected


def test_timestamps_with_and_without_fractions() -> None:
    assert parse_time("2027-01-15T08:00:00Z") == 1_800_000_000.0
    assert parse_time("2027-01-15T08:00:00.250000Z") == 1_800_000_000.25


@pytest.mark.parametrize("missing", [None, ""])
def test_no_time_is_unknown(missing: str | None) -> None:
    assert since(missing, 0.0) == "<unknown>"
