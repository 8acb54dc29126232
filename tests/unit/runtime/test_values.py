"""Durations are parsed as they are formatted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.runtime.values import Duration, decode


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("2d", 172_800),
    ],
)
def test_durations_are_parsed(text: str, seconds: float):
    assert Duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "-5s", "5 m", "5m ", "1e3s", "5x", "٣s"])
def test_malformed_durations_are_refused(text: str):
    with pytest.raises(ValueError, match="is not a duration such as 30s, 5m or 1h30m"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (30, "30s"), (90.5, "1m30.5s"), (3600, "1h"), (90061, "1d1h1m1s")],
)
def test_durations_are_formatted(seconds: float, text: str):
    assert str(Duration(seconds)) == text


@given(st.floats(min_value=0, max_value=1e9).map(lambda seconds: round(seconds, 9)))
def test_what_is_shown_is_read_back(seconds: float):
    assert Duration.parse(str(Duration(seconds))) == seconds


def test_custom_types_are_decoded_from_text_only():
    with pytest.raises(ValueError, match="Duration is read from text"):
        decode(Duration, 5)
