"""Numbers and percentages of a pool, as people write them: `2`, `"2"`, `"25%"`."""

import re
from typing import Final

from libs.policy.shapes import IntOrString

_TEXT: Final = re.compile(r"([0-9]{1,9})(%?)", re.ASCII)


def is_int_or_percent(value: IntOrString) -> bool:
    """Whether it is a number from 0 up or a percentage from 0 to 100."""
    if isinstance(value, int):
        return value >= 0
    found = _TEXT.fullmatch(value)
    return found is not None and (not found[2] or int(found[1]) <= 100)


def scaled_value(amount: IntOrString, total: int) -> int:
    """So many of `total`: a percentage is rounded up. The amount must be one (`is_amount`)."""
    if isinstance(amount, int):
        return amount
    found = _TEXT.fullmatch(amount)
    if found is None:
        raise ValueError(f"{amount!r} is no number and no percentage; read it with is_amount first")
    number = int(found[1])
    return -(-number * total // 100) if found[2] else number
