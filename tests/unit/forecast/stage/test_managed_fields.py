"""Server-side apply as a real API server does it, field by field."""

from libs.forecast.stage.managed_fields import Fields, applied, updated
from libs.forecast.stage.objects import OwnedField

US, PERSON, OTHER = "us", "person", "other"


def held(value: object, *managers: str) -> Fields:
    return {"f": OwnedField(value, managers)}


def test_an_apply_takes_over_fields_it_changes() -> None:
    assert applied(held("a", PERSON, OTHER), US, {"f": "b"}) == held("b", US)


def test_an_apply_shares_unchanged_fields() -> None:
    assert applied(held("a", PERSON), US, {"f": "a"}) == held("a", PERSON, US)


def test_an_unchanged_apply_changes_nothing() -> None:
    before = held("a", PERSON, US)
    assert applied(before, US, {"f": "a"}) == before


def test_a_field_no_longer_applied_is_removed_if_not_shared() -> None:
    assert applied(held("a", US), US, {}) == {}


def test_and_stays_where_others_own_it() -> None:
    assert applied(held(True, PERSON, US), US, {}) == held(True, PERSON)


def test_foreign_fields_are_kept() -> None:
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


def test_an_update_without_change_takes_no_ownership() -> None:
    assert updated(held(True, US), PERSON, {"f": True}) == held(True, US)


def test_an_update_removes_a_field_of_any_owner() -> None:
    assert updated(held(True, US, PERSON), OTHER, {"f": None, "g": None}) == {}


def test_a_cordon_set_again_belongs_to_its_new_writer() -> None:
    ours = applied({}, US, {"f": True})
    again = updated(updated(ours, PERSON, {"f": None}), PERSON, {"f": True})
    assert applied(again, US, {}) == held(True, PERSON)
