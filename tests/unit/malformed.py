"""JSON trees with one part replaced by something else, for tests of readers."""

from typing import Any, cast

import msgspec
from hypothesis import strategies as st

TIMES = ("", "yesterday", "0000-00-00T00:00:00Z", "99999-01-01T00:00:00Z", "2027-01-15T08:00:00Z")


def _is_encodable(tree: object) -> bool:
    try:
        msgspec.json.encode(tree)
    except (OverflowError, UnicodeEncodeError):
        return False
    return True


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from((*TIMES, "²", "9" * 5_000))
)
any_json = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
).filter(_is_encodable)


def with_a_part_replaced(tree: Any, data: st.DataObject) -> Any:
    """Return the tree with one part, at any depth, replaced by an arbitrary value."""
    if isinstance(tree, dict) and tree and data.draw(st.integers(0, 9), "deeper"):
        branches = cast("dict[str, Any]", tree)
        key = data.draw(st.sampled_from(sorted(branches)), "key")
        return {**branches, key: with_a_part_replaced(branches[key], data)}
    if isinstance(tree, list) and tree and data.draw(st.integers(0, 9), "deeper"):
        items = cast("list[Any]", tree)
        index = data.draw(st.integers(0, len(items) - 1), "index")
        return [
            *items[:index],
            with_a_part_replaced(items[index], data),
            *items[index + 1 :],
        ]
    return data.draw(any_json, "instead")
