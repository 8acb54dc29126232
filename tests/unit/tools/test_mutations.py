"""What can be broken in a module, and what it reads like then."""

import ast

from tools.mutations import mutated, mutations

SOURCE = """
def admits(free: int, names: set[str], name: str) -> bool:
    if not names:
        return False
    if name in names and free > 0:
        return True
    kind = "last" if free else "none"
    if kind:
        names.add(name)
    return False
"""


def broken() -> dict[str, str]:
    """By what is broken: the module."""
    return {one.what: ast.unparse(mutated(SOURCE, one)) for one in mutations(SOURCE)}


def test_every_guard_is_listed_once_from_the_top_down() -> None:
    found = mutations(SOURCE)
    assert [(one.line, one.what) for one in found] == [
        (3, "if not names: never"),
        (3, "not names: without not"),
        (5, "if name in names and free > 0: never"),
        (5, "name in names and free > 0: without name in names"),
        (5, "name in names and free > 0: without free > 0"),
        (5, "name in names: in -> not in"),
        (5, "free > 0: > -> >="),
        (5, "free > 0: > -> <="),
        (7, "'last' if free else 'none': turned round"),
        (8, "if kind: turned round"),
    ]
    assert {one.function for one in found} == {"admits"}
    assert len({one.key for one in found}) == len(found)


def test_one_guard_is_broken_and_the_rest_stays() -> None:
    whole = broken()
    assert "if False:\n        return False" in whole["if not names: never"]
    assert "if names:" in whole["not names: without not"]
    assert "if name in names and free >= 0:" in whole["free > 0: > -> >="]
    assert "if name not in names and free > 0:" in whole["name in names: in -> not in"]
    assert "if name in names:" in whole["name in names and free > 0: without free > 0"]
    assert "'last' if not free else 'none'" in whole["'last' if free else 'none': turned round"]
    assert len(set(whole.values())) == len(whole)


def test_a_guard_keeps_its_key_while_its_function_reads_the_same() -> None:
    before = {one.what: one.key for one in mutations(SOURCE)}
    moved = {one.what: one.key for one in mutations(f'"""More above."""\n\nLIMIT = 1\n{SOURCE}')}
    changed = {one.what: one.key for one in mutations(SOURCE.replace('"last"', '"first"'))}
    assert moved == before
    assert not set(changed.values()) & set(before.values())


def test_chained_comparisons_are_broken_one_at_a_time() -> None:
    source = "def between(low: int, it: int, high: int) -> bool:\n    return low <= it < high\n"
    made = [ast.unparse(mutated(source, one)).splitlines()[1].strip() for one in mutations(source)]
    assert made == [
        "return low < it < high",
        "return low > it < high",
        "return low <= it <= high",
        "return low <= it >= high",
    ]


def test_every_other_line_stays_where_it_is() -> None:
    source = (
        "def late(now: int) -> bool:\n    return (\n        now\n        > 3\n    )\n\n\nLAST = 1\n"
    )
    one, *_ = mutations(source)
    assert (one.line, one.until) == (3, 4)
    assert mutated(source, one).body[-1].lineno == 8


def test_what_the_type_checker_asks_for_is_none() -> None:
    source = """
def of(it: str | None, other: str | None) -> bool:
    if other is None:
        raise LookupError
    if it is not None and it.isdigit():
        return True
    return it is None or other.isdigit()
"""
    said = [one.what for one in mutations(source)]
    assert sorted(what for what in said if what.startswith(("if other", "it"))) == [
        "it is None or other.isdigit(): without it is None",
        "it is None or other.isdigit(): without other.isdigit()",
        "it is None: is -> is not",
        "it is not None and it.isdigit(): without it.isdigit()",
        "it is not None: is not -> is",
    ]
