"""Each wait code names its resolver, and docs/states.md lists the same codes."""

import re
from pathlib import Path

import pytest

from libs.contracts.waits import RESOLVED_BY, WaitCode, people_of
from libs.rollout.wait_reasons import wait
from tests.unit.rollout.builders import NOW, instant

PAGE = Path(__file__).parents[3] / "docs" / "states.md"


def test_every_code_names_its_resolver() -> None:
    assert set(RESOLVED_BY) == set(WaitCode)
    assert all(RESOLVED_BY.values())


CLAUSE = re.compile(
    r"itself|(if it lasts, |then |or, if [^,]+, )?(an?|the) "
    r"(administrator|author|owners?|user)\b.*"
)


@pytest.mark.parametrize("code", WaitCode)
def test_each_part_of_a_resolver_names_a_person_or_needs_nobody(code: WaitCode) -> None:
    for clause in RESOLVED_BY[code].split("; "):
        assert CLAUSE.fullmatch(clause), clause


def test_the_page_lists_exactly_these_codes() -> None:
    part = PAGE.read_text().split('<a id="waits"></a>')[1].split('<a id="')[0]
    assert set(re.findall(r"^\| `([a-z-]+)`", part, re.MULTILINE)) == {
        code.value for code in WaitCode
    }


@pytest.mark.parametrize("code", WaitCode)
def test_a_wait_begins_now_and_names_its_resolver(code: WaitCode) -> None:
    result = wait(code, "why", instant(), NOW + 5)
    assert (result.code, result.detail, result.since, result.until) == (code, "why", NOW, NOW + 5)
    assert result.who == RESOLVED_BY[code]
    assert wait(code, "why", instant(), who="she").who == "she"


@pytest.mark.parametrize(
    ("who", "people"),
    [
        ("itself", ""),
        ("itself; if it lasts, the owners", "the owners"),
        ("itself; the author", "the author"),
        ("the owners", "the owners"),
    ],
)
def test_the_people_who_can_end_a_wait(who: str, people: str) -> None:
    assert people_of(who) == people
