"""The second upgrade of a fleet is predicted from the first one, in worlds that plans do not know.

`make bench ARGS=second_upgrade` does the same with 60 fleets, of which nine in ten must be within
20 %; of ten fleets, that is one rollout's chance.
"""

import pytest

from bench.report import BenchReport
from bench.second_upgrade import quantile, second_upgrade

FLEETS, PLAYS, LARGEST = 10, 9, 16


@pytest.mark.dear("ten fleets are upgraded, and each upgrade is predicted from nine plays")
def test_a_second_upgrade_takes_about_as_long_as_predicted_from_the_first() -> None:
    upgrades = (second_upgrade(number, largest=LARGEST) for number in range(FLEETS))
    found = [each for each in upgrades if each is not None]
    assert len(found) >= FLEETS // 2
    errors = [each.error(each.predicted(PLAYS)) for each in found]
    report = BenchReport()
    report.at_most("median error", 100 * quantile(errors, 0.5), 10.0, "%")
    report.at_most("error of nine in ten", 100 * quantile(errors, 0.9), 25.0, "%")
    assert report.close() == 0, errors
