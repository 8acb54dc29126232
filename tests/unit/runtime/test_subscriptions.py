"""Subscriptions that end with a block, and pauses that overlap."""

from contextlib import suppress

from libs.runtime.pauses import Pauses
from libs.runtime.subscriptions import join_subscriptions, subscribed


def test_all_subscriptions_end_with_the_block_also_after_a_failure() -> None:
    ended: list[str] = []
    first, second = (lambda: ended.append("first")), (lambda: ended.append("second"))
    with suppress(OSError), subscribed(first, second):
        assert ended == []
        raise OSError("lost")
    assert ended == ["first", "second"]
    join_subscriptions(first, second)()
    assert ended == ["first", "second"] * 2


def test_a_pause_lasts_until_the_last_of_several_ends() -> None:
    pauses = Pauses()
    seen = [bool(pauses)]
    with pauses.hold():
        with suppress(OSError), pauses.hold():
            seen.append(bool(pauses))
            raise OSError("lost")
        seen.append(bool(pauses))
    assert [*seen, bool(pauses)] == [False, True, True, False]
