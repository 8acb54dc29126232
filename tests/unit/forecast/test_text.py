import pytest

from libs.forecast.remarks import format_count, format_duration, format_names


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "an unknown time"),
        (0.0, "0 s"),
        (59.4, "59 s"),
        (60.0, "1 min"),
        (3599.0, "60 min"),
        (3600.0, "1 h 00 min"),
        (7265.0, "2 h 01 min"),
        (172_799.0, "48 h 00 min"),
        (172_800.0, "2.0 days"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert format_duration(seconds) == said


def test_counts_and_names() -> None:
    assert format_count(1, "node") == "1 node"
    assert format_count(0, "node") == "0 nodes"
    assert format_names(["a", "b", "c"]) == "a, b, c"
    assert format_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert format_names([]) == ""
