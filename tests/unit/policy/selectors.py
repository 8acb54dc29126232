"""Label selectors that an API server accepts, and those that it refuses."""

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
