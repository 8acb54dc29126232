"""Numbers and percentages as Kubernetes' IntOrString: `2`, `"2"`, `"25%"`."""

import re
from typing import Final

from libs.policy.shapes import IntOrString

_TEXT: Final = re.compile(r"([0-9]{1,9})(%?)", re.ASCII)


def is_int_or_percent(value: IntOrString) -> bool:
    """Report whether a value is a number from 0 up or a percentage from 0 to 100."""
    if isinstance(value, int):
        return value >= 0
    found = _TEXT.fullmatch(value)
    return found is not None and (not found[2] or int(found[1]) <= 100)


def scaled_value(amount: IntOrString, total: int) -> int:
    """Return the amount out of `total`, a percentage rounded up.

    The amount must satisfy `is_int_or_percent`.
    """
    if isinstance(amount, int):
        return amount
    found = _TEXT.fullmatch(amount)
    if found is None:
        raise ValueError(f"{amount!r} is no number and no percentage; read it with is_amount first")
    number = int(found[1])
    return -(-number * total // 100) if found[2] else number
