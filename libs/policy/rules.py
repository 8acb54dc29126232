"""The rules of the CRDs: what the API server evaluates, and a predicate that means the same.

The text is what a real server runs; the predicate is what a simulated one asks, and what tests hold
against the real one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from libs.policy.kinds.nvidia_driver import FIXED, NO_SELECTOR_OF_DEFAULT

Predicate = Callable[[Any, Any], bool]
"""Whether a value keeps the rule; the second is what it was before, or None."""


def _unchanged(value: Any, old: Any) -> bool:
    return bool(value == old)


def _default_selects_nothing(spec: Any, _old: Any) -> bool:
    return not spec.get("default") or not spec.get("nodeSelector")


RULES: Final[Mapping[str, Predicate]] = {
    FIXED: _unchanged,
    NO_SELECTOR_OF_DEFAULT: _default_selects_nothing,
}
"""Every rule of every CRD, by its text."""
