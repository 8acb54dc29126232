"""What a soak tells while it works, when it is done, and when it is stopped."""

from collections.abc import Iterator

from tools.soak_work import STOPPED, SeedResult, SeedTally

GOOD, BAD = SeedResult(3, "", 4), SeedResult(7, "audit: I1 of n1", 0)


def observed(seeds: int, *found: SeedResult, stopped: bool = False) -> tuple[SeedTally, list[str]]:
    def results() -> Iterator[SeedResult]:
        yield from found
        if stopped:
            raise KeyboardInterrupt

    tally, lines = SeedTally(seeds), list[str]()
    tally.observe_all(results(), lines.append)
    return tally, lines


def test_a_stopped_soak_keeps_what_was_judged() -> None:
    earlier = BAD._replace(seed=2)
    tally, lines = observed(1000, GOOD, BAD, earlier, stopped=True)
    assert tally.stopped
    assert tally.summary == "3 of 1000 seeds, 4 nodes ended in place, 2 failed"
    assert tally.failures == ["2 of 3 seeds failed (audit); the first is 2"]
    assert tally.first_seeds == [2]
    assert lines == ["seed 7 failed (audit)"]
    assert tally.status == 1
    assert observed(1000, GOOD, stopped=True)[0].status == STOPPED


def test_progress_is_told_a_hundred_times() -> None:
    tally, lines = observed(1000, *[GOOD] * 1000)
    assert len(lines) == 100
    assert lines[0] == "10 of 1000 seeds, 40 nodes ended in place, 0 failed"
    assert (tally.status, tally.failures) == (0, [])
    assert len(observed(3, *[GOOD] * 3)[1]) == 3
