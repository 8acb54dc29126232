"""The seeded world: always the same answer, with the stated distributions and rates."""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import pytest

from libs.forecast.seeded_world import FleetProfile, Lognormal, SeededWorld, draw
from libs.forecast.world import (
    NEVER,
    RUNS_FOREVER,
    VALIDATION_STEPS,
    ProcessEnd,
    TimeSpan,
    ValidationEnd,
    WorldModel,
)
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import SeededFleet

DRAWS = 10_000

CERTAIN = FleetProfile(
    crashes=0,
    job_endless=0,
    ignores_stop=0,
    eviction_stuck=0,
    unload_busy=0,
    unload_hangs=0,
    never_loads=0,
    load_fails=0,
    load_hangs=0,
    never_validates=0,
    validation_fails=0,
    validation_hangs=0,
    eviction_refused=1,
    eviction_refused_forever=0,
)
"""Nothing goes wrong, and every pod is guarded for a time."""

Question = Callable[[WorldModel, int], TimeSpan | ProcessEnd | ValidationEnd]

QUESTIONS: dict[str, Question] = {
    "pull": lambda world, number: world.pull(f"n{number}", "driver", "main"),
    "ready": lambda world, number: world.ready(f"n{number}", "driver", "main", 0),
    "run": lambda world, number: world.run(f"n{number}", "driver", "main", 0),
    "stop": lambda world, number: world.stop(f"n{number}", "train", "main"),
    "unload": lambda world, number: world.unload(f"n{number}", 0),
    "load": lambda world, number: world.load(f"n{number}", "a", 0),
    "validation": lambda world, number: world.validation(f"n{number}", "a", 0),
    "refusal": lambda world, number: world.refusal(f"ml/train-{number}"),
    "eviction": lambda world, number: world.eviction(f"ml/train-{number}", 1e6),
    "remainder": lambda world, number: world.remainder(f"ml/train-{number}", 0.0),
}

DISTRIBUTION_OF = {name: name for name in QUESTIONS if name != "run"} | {
    "eviction": "stop",
    "remainder": "job",
}
"""The distribution of the profile that the seconds of each question follow."""


def _answers(
    world: WorldModel, name: str, count: int = DRAWS
) -> list[TimeSpan | ProcessEnd | ValidationEnd]:
    return [QUESTIONS[name](world, number) for number in range(count)]


def _seconds(answer: TimeSpan | ProcessEnd | ValidationEnd) -> float:
    return not_none(answer.seconds if isinstance(answer, TimeSpan) else answer.after)


def _share(
    answers: list[TimeSpan | ProcessEnd | ValidationEnd],
    *among: TimeSpan | ProcessEnd | ValidationEnd,
) -> float:
    return sum(answer in among for answer in answers) / len(answers)


def test_the_same_question_has_the_same_answer_in_any_order_and_process() -> None:
    script = (
        "from libs.forecast.seeded_world import SeededWorld\n"
        "world = SeededWorld(7)\n"
        "for number in reversed(range(40)):\n"
        "    print(world.load(f'n{number}', 'a', number), world.remainder(f'p{number}', 60.0))\n"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in ("1", "2")
    ]
    world = SeededWorld(7)
    expected = [
        f"{world.load(f'n{number}', 'a', number)} {world.remainder(f'p{number}', 60.0)}"
        for number in range(40)
    ]
    assert printed[0] == printed[1] == expected[::-1]


def test_answers_are_equal_on_every_machine() -> None:
    world = SeededWorld(
        7, profile=FleetProfile(load=Lognormal(100.0, 200.0), pull=Lognormal(10.0, 20.0))
    )
    assert world.load("node-1", "a", 0) == ProcessEnd(34.612)
    assert world.pull("node-1", "driver", "main") == TimeSpan(18.46)


def test_different_seeds_give_different_answers() -> None:
    for name in QUESTIONS:
        if name != "run":
            first, second = (
                _answers(SeededWorld(seed, profile=CERTAIN), name, 50) for seed in (7, 8)
            )
            assert first != second, name


def test_the_parts_of_a_question_are_separated() -> None:
    world = SeededWorld(7)
    assert world.pull("a", "bc", "d") != world.pull("ab", "c", "d")
    assert world.load("n1", "a", 10) != world.load("n1", "a1", 0)


@pytest.mark.parametrize("name", DISTRIBUTION_OF)
def test_seconds_follow_the_distribution_of_the_profile(name: str) -> None:
    distribution: Lognormal = getattr(CERTAIN, DISTRIBUTION_OF[name])
    seconds = sorted(map(_seconds, _answers(SeededWorld(7, profile=CERTAIN), name)))
    assert statistics.median(seconds) == pytest.approx(distribution.median, rel=0.04)
    assert seconds[DRAWS * 95 // 100] == pytest.approx(distribution.p95, rel=0.08)
    for share in (0.05, 0.25, 0.75, 0.99):
        below = sum(value <= distribution.quantile(share) for value in seconds) / DRAWS
        assert below == pytest.approx(share, abs=0.015)


RATES = FleetProfile(
    crashes=0.2,
    job_endless=0.1,
    ignores_stop=0.2,
    eviction_stuck=0.1,
    unload_busy=0.2,
    unload_hangs=0.1,
    never_loads=0.0,
    load_fails=0.2,
    load_hangs=0.1,
    never_validates=0.0,
    validation_fails=0.2,
    validation_hangs=0.1,
    eviction_refused=0.5,
    eviction_refused_forever=0.4,
)


def _failed(answer: TimeSpan | ProcessEnd | ValidationEnd) -> bool:
    if isinstance(answer, ValidationEnd):
        return answer.failed != ""
    return isinstance(answer, ProcessEnd) and answer.exit_code != 0


def test_failures_follow_the_rates_of_the_profile() -> None:
    world = SeededWorld(7, profile=RATES)
    answers = {name: _answers(world, name) for name in QUESTIONS}
    endless = {
        name: _share(answers[name], NEVER, RUNS_FOREVER, ValidationEnd(None))
        for name in ("stop", "unload", "load", "validation", "refusal", "eviction")
    }
    assert endless == pytest.approx(
        {
            "stop": 0.2,
            "unload": 0.1,
            "load": 0.1,
            "validation": 0.1,
            "refusal": 0.2,
            "eviction": 0.1,
        },
        abs=0.015,
    )
    failed = {
        name: sum(map(_failed, answers[name])) / DRAWS
        for name in ("run", "unload", "load", "validation")
    }
    assert failed == pytest.approx(
        {"run": 0.2, "unload": 0.2, "load": 0.2, "validation": 0.2},
        abs=0.015,
    )
    assert _share(answers["refusal"], TimeSpan(0.0)) == pytest.approx(0.5, abs=0.015)
    assert _share(answers["eviction"], TimeSpan(1e6)) == pytest.approx(0.2, abs=0.015)


def test_a_validation_fails_at_any_step() -> None:
    verdicts = _answers(SeededWorld(7, profile=RATES), "validation")
    steps = [end.failed for end in verdicts if isinstance(end, ValidationEnd) and end.failed]
    for step in VALIDATION_STEPS:
        assert steps.count(step) / len(steps) == pytest.approx(0.25, abs=0.03)


def test_a_failed_attempt_can_succeed_the_next_time() -> None:
    world = SeededWorld(7, profile=RATES)
    second_attempts = [
        world.load(f"n{number}", "a", 1).exit_code
        for number in range(1000)
        if world.load(f"n{number}", "a", 0).exit_code
    ]
    assert sum(second_attempts) / len(second_attempts) == pytest.approx(0.2, abs=0.06)


def test_an_unfit_node_fails_at_every_attempt_with_this_driver_alone() -> None:
    world = SeededWorld(7, profile=FleetProfile(never_loads=0.3, load_fails=0, load_hangs=0))
    unfit = [f"n{n}" for n in range(100) if world.load(f"n{n}", "a", 0).exit_code]
    assert 20 <= len(unfit) <= 40
    assert all(world.load(node, "a", attempt).exit_code for node in unfit for attempt in range(20))
    assert not all(world.load(node, "b", 0).exit_code for node in unfit)


def test_a_node_with_an_unsound_driver_always_fails_the_cuda_step() -> None:
    world = SeededWorld(
        7, profile=FleetProfile(never_validates=0.3, validation_fails=0, validation_hangs=0)
    )
    steps = {world.validation("n1", "a", attempt).failed for attempt in range(20)}
    assert steps in ({""}, {"cuda"})
    failed = [n for n in range(100) if world.validation(f"n{n}", "a", 0).failed]
    assert 20 <= len(failed) <= 40


def test_a_bad_driver_never_loads_and_an_unsound_driver_never_passes() -> None:
    world = SeededFleet(7, bad_drivers=frozenset({"bad"}), unsound_drivers=frozenset({"hollow"}))
    for number in range(200):
        assert world.load(f"n{number}", "bad", number).exit_code == 1
        assert world.validation(f"n{number}", "hollow", number).failed == "cuda"
    exit_codes = [world.load(f"n{number}", "hollow", 0).exit_code for number in range(200)]
    assert sum(exit_codes) < 10


def test_the_remainder_of_a_job_depends_on_its_age() -> None:
    world = SeededWorld(7, profile=CERTAIN)
    job = CERTAIN.job
    age = job.p95
    remainders = sorted(
        _seconds(world.remainder(f"ml/train-{number}", age)) for number in range(DRAWS)
    )
    assert statistics.median(remainders) == pytest.approx(job.quantile(0.975) - age, rel=0.05)
    assert remainders[0] >= 0.0


def test_an_eviction_ends_within_the_grace_period() -> None:
    world = SeededWorld(7, profile=CERTAIN)
    spans = [world.eviction(f"ml/train-{number}", 3.0) for number in range(1000)]
    assert max(_seconds(span) for span in spans) == 3.0
    assert TimeSpan(3.0) in spans


def test_a_lognormal_is_defined_by_two_of_its_quantiles() -> None:
    distribution = Lognormal(120.0, 300.0)
    assert distribution.quantile(0.5) == pytest.approx(120.0)
    assert distribution.quantile(0.95) == pytest.approx(300.0)
    assert distribution.quantile(0.05) == pytest.approx(48.0)
    assert distribution.share_below(120.0) == pytest.approx(0.5)
    assert distribution.share_below(300.0) == pytest.approx(0.95)
    assert distribution.share_below(0.0) == 0.0
    assert distribution.share_below(distribution.quantile(0.123)) == pytest.approx(0.123)


@pytest.mark.parametrize(("median", "p95"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 2.0), (3.0, 2.0)])
def test_invalid_distributions_are_refused(median: float, p95: float) -> None:
    with pytest.raises(ValueError, match="are no distribution"):
        Lognormal(median, p95)


def test_drawn_numbers_are_uniform_and_independent() -> None:
    pairs = [draw(f"question {number}") for number in range(10_000)]
    for column in zip(*pairs, strict=True):
        for tenth in range(10):
            share = sum(tenth / 10 <= value < (tenth + 1) / 10 for value in column) / 10_000
            assert share == pytest.approx(0.1, abs=0.01)
        assert min(column) > 0.0
        assert max(column) < 1.0
    both_below_half = sum(first < 0.5 and second < 0.5 for first, second in pairs) / 10_000
    assert both_below_half == pytest.approx(0.25, abs=0.015)
