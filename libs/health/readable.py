"""Which numbers of a reading can be true; another says nothing."""

from libs.contracts.numbers import LIMIT


def count(value: object) -> int | None:
    """Return a number that can be true; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= LIMIT else None


def flag(value: object) -> bool | None:
    number = count(value)
    return None if number not in (0, 1) else number == 1
