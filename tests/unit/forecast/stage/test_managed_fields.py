"""Server-side apply as a real API server does it, field by field."""

from libs.forecast.stage.managed_fields import Fields, OwnedField, applied, updated

US, PERSON, OTHER = "us", "person", "other"


def held(value: object, *managers: str) -> Fields:
    return {"f": OwnedField(value, managers)}


def test_an_apply_takes_what_it_wants_otherwise_for_itself() -> None:
    assert applied(held("a", PERSON, OTHER), US, {"f": "b"}) == held("b", US)


def test_an_apply_of_what_stands_makes_it_ours_too() -> None:
    assert applied(held("a", PERSON), US, {"f": "a"}) == held("a", PERSON, US)


def test_an_unchanged_apply_changes_nothing() -> None:
    before = held("a", PERSON, US)
    assert applied(before, US, {"f": "a"}) == before


def test_what_is_not_applied_any_more_goes_where_it_was_ours_alone() -> None:
    assert applied(held("a", US), US, {}) == {}


def test_and_stays_where_others_own_it() -> None:
    assert applied(held(True, PERSON, US), US, {}) == held(True, PERSON)


def test_what_was_never_ours_is_not_touched() -> None:
    assert applied(held("a", PERSON), US, {}) == held("a", PERSON)


def test_a_false_is_not_a_missing_one() -> None:
    assert applied(held(True, OTHER), US, {"f": False}) == held(False, US)
    assert applied(held(False, US), US, {}) == {}


def test_two_applies_take_away_what_somebody_else_set() -> None:
    once = applied(held("true", PERSON), US, {"f": ""})
    assert once == held("", US)
    assert applied(once, US, {}) == {}


def test_an_update_takes_over_what_it_changes() -> None:
    assert updated(held("a", US), PERSON, {"f": "b"}) == held("b", PERSON)


def test_an_update_to_what_stands_leaves_no_trace() -> None:
    assert updated(held(True, US), PERSON, {"f": True}) == held(True, US)


def test_an_update_removes_whoever_owned_it() -> None:
    assert updated(held(True, US, PERSON), OTHER, {"f": None, "g": None}) == {}


def test_a_cordon_that_was_taken_away_and_set_again_is_not_ours_any_more() -> None:
    ours = applied({}, US, {"f": True})
    again = updated(updated(ours, PERSON, {"f": None}), PERSON, {"f": True})
    assert applied(again, US, {}) == held(True, PERSON)
