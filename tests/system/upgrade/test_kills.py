"""The kills that are played: all of them in a soak, two of them by turns otherwise."""

from collections import Counter
from itertools import product

from tests.system.upgrade.kills import ALL, KILLS, PHASES, VARIABLE, plans


def test_a_soak_plays_each_kill_in_each_phase_once() -> None:
    turns = Counter(turn for plan in plans({VARIABLE: ALL}) for turn in plan)
    assert turns == Counter(product(KILLS, PHASES))


def test_numbers_in_sequence_play_all_kills_too() -> None:
    whole = plans({VARIABLE: ALL})
    chosen = [plans({VARIABLE: str(number)}) for number in range(len(whole))]
    assert chosen == [[plan] for plan in whole]
