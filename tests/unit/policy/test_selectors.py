"""Label selectors: syntax as the API server checks it, and matching."""

import pytest

from libs.policy.selectors import is_valid_selector, selects

VALID = (
    *("", "  ", "a", "a=b", "a==b", "a!=b", "!a", "! a", "a=", "a!=", "a=,b", " a=b "),
    *("a,b", "a, b", "a=b,!c,d in (e, f)", "x.y/a=b", "a_b=c.d", "in", "a in (b),c"),
    *("a in (b)", "a in(b)", "a in (b,c)", "a notin (b, c)", "a notin(b)", "a in ()", "a in (,)"),
    *("a>1", "a > 1", "a<01", f"a={'b' * 63}"),
)
INVALID = (
    *("a,", "a,,b", ",a", "-a", "a=-b", "a b", "A/b", "a/b/c", "/a", "a/", "a..b/c", "a-/c"),
    *("a=b=c", "a!b", "a===b", "a=!b", "(a)", "a in b", "a in (b", "a in (b c)", "ain(b)"),
    *("!a=b", "!", "a>", "a>b", "a=b c", "a" * 64, f"a={'b' * 64}", "a in (-)"),
)
SELECTORS = [*((text, True) for text in VALID), *((text, False) for text in INVALID)]
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


@pytest.mark.parametrize(("selector", "valid"), SELECTORS)
def test_a_selector_is_valid_as_kubernetes_reads_it(selector: str, valid: bool) -> None:
    assert is_valid_selector(selector) is valid


def test_long_selectors_are_checked_quickly() -> None:
    gap = " " * 100_000
    assert not is_valid_selector(f"a={gap},{gap}!!")
    assert is_valid_selector(f"a={gap},{gap}b in ({gap}c{gap})")
