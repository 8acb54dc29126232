"""Matching of label selectors."""

import pytest

from libs.policy.selectors import selects

LABELS = {"app": "train", "tier": "a", "size": "7"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=train", True),
        ("app==train,tier=a", True),
        ("app=train,tier=b", False),
        ("app!=train", False),
        ("other!=x", True),
        ("app", True),
        ("other", False),
        ("!other", True),
        ("!app", False),
        ("app in (train, serve)", True),
        ("app in (serve),tier=a", False),
        ("app notin (serve, x),tier in (a)", True),
        ("other notin (x)", True),
        ("other in (x)", False),
        ("size>5", True),
        ("size<5", False),
        ("other>5", False),
    ],
)
def test_selectors_match_labels(selector: str, matches: bool) -> None:
    assert selects(selector, LABELS) is matches
