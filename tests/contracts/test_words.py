"""Words for people, by tables: each text that users meet is one of a row here."""

import pytest

from libs.contracts.words import (
    clock_time,
    excerpt,
    first_few,
    first_sentences,
    format_duration,
    one_line,
    plural,
    printable,
    shorten,
)

_BAD = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("gpu-1: größer", "gpu-1: größer"),
        ("a\x1b[2J\nb", f"a{_BAD}[2J{_BAD}b"),
        ("a\ud800b", f"a{_BAD}b"),
    ],
)
def test_what_controls_a_terminal_is_replaced(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text, "") == shown.replace(_BAD, "")
    assert one_line(text, 100) == shown.replace(_BAD, " ")
    assert excerpt(text) == shown.replace(_BAD, "?")


@pytest.mark.parametrize(
    ("text", "line", "short"),
    [("abcd", "abcd", "abcd"), ("abcde", "abcd", "abc…"), ("a\nc\nef", "a c ", "a\nc…")],
)
def test_long_texts_are_cut(text: str, line: str, short: str) -> None:
    assert one_line(text, 4) == line
    assert shorten(text, 4) == short
    assert excerpt(text, 4) == short.replace("\n", "?")
    assert len(excerpt("x" * 10**6)) == 80


@pytest.mark.parametrize(
    ("names", "few", "sentences"),
    [
        ("", "", ""),
        ("a", "a", "a"),
        ("ab", "a, b", "a; b"),
        ("abc", "a, b and 1 more", "a; b; and 1 more"),
        ("abcde", "a, b and 3 more", "a; b; and 3 more"),
    ],
)
def test_of_many_the_first_are_named(names: str, few: str, sentences: str) -> None:
    assert first_few(names, 2) == few
    assert first_few(iter(names), 2, between="; ") == few.replace(",", ";")
    assert first_sentences(iter(names), 2) == sentences


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (-1, "-1 nodes")]
)
def test_counts_agree_with_their_noun(count: int, text: str) -> None:
    assert plural(count, "node") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (-3.0, "0 s"),
        (59.4, "59 s"),
        (60.0, "1 min"),
        (90.0, "1 min 30 s"),
        (3605.0, "1 h"),
        (7500.0, "2 h 5 min"),
        (90_000.0, "1 d 1 h"),
        (None, "unknown"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_times_are_in_utc() -> None:
    assert clock_time(1_800_000_000.9) == "2027-01-15 08:00:00"
