"""The simple world: always the same answer, and odd only where it was told to be."""

import pytest

from libs.forecast.world import NEVER, RUNS_ON, Ending, Model, Oddity, Span, Steady, Verdict


def test_everything_takes_its_usual_time() -> None:
    world: Model = Steady(pulling=3.0, preparing=2.0, starting=5.0, stopping=4.0, booting=60.0)
    assert world.pull("n1", "driver", "main") == Span(3.0)
    assert world.init("n1", "driver", "gate", 0) == Ending(2.0)
    assert world.ready("n1", "driver", "main", 0) == Span(5.0)
    assert world.run("n1", "driver", "main", 0) == RUNS_ON
    assert world.job("n1", "train", "main", 0) == Ending(60.0, 0)
    assert world.stop("n1", "driver", "main") == Span(4.0)
    assert world.boot("n1", 0) == Span(60.0)


def test_an_oddity_concerns_only_what_it_names() -> None:
    world = Steady(oddities=(Oddity(node="n1", workload="driver", container="main", ready=NEVER),))
    assert world.ready("n1", "driver", "main", 0) == NEVER
    for other in (("n2", "driver", "main"), ("n1", "plugin", "main"), ("n1", "driver", "side")):
        assert world.ready(*other, 0) == Span(1.0)
    assert world.run("n1", "driver", "main", 0) == RUNS_ON


def test_first_attempts_may_fail_and_later_ones_work() -> None:
    world = Steady(oddities=(Oddity(workload="driver", attempts=2, run=Ending(1.0, 1)),))
    answers = [world.run("n1", "driver", "main", attempt) for attempt in range(4)]
    assert answers == [Ending(1.0, 1), Ending(1.0, 1), RUNS_ON, RUNS_ON]


def test_the_first_oddity_that_has_an_answer_has_the_word() -> None:
    world = Steady(
        oddities=(
            Oddity(node="n1", stop=Span(9.0)),
            Oddity(node="n1", boot=NEVER),
            Oddity(boot=Span(300.0)),
        )
    )
    assert world.boot("n1", 0) == NEVER
    assert world.boot("n2", 0) == Span(300.0)
    assert world.stop("n1", "driver", "main") == Span(9.0)


def test_a_boot_may_be_odd_the_first_time_only() -> None:
    world = Steady(oddities=(Oddity(node="n1", attempts=1, boot=Span(600.0)),))
    assert [world.boot("n1", attempt) for attempt in range(2)] == [Span(600.0), Span(90.0)]


def _spans(world: Steady) -> list[float]:
    spans = [world.ready(f"n{number}", "driver", "main", 0).seconds for number in range(200)]
    return [span for span in spans if span is not None]


def test_a_spread_lengthens_each_time_differently_and_always_the_same() -> None:
    spans = _spans(Steady(seed=7, starting=10.0, spread=0.5))
    assert spans == _spans(Steady(seed=7, starting=10.0, spread=0.5))
    assert len(set(spans)) == 200
    assert all(10.0 <= span < 15.0 for span in spans)
    assert sum(spans) / 200 == pytest.approx(12.5, abs=0.3)


def test_another_seed_is_another_world() -> None:
    assert _spans(Steady(seed=7, spread=0.5)) != _spans(Steady(seed=8, spread=0.5))


def test_an_upgrade_takes_its_usual_time() -> None:
    world: Model = Steady(unloading=2.0, loading=30.0, validating=8.0, working=100.0, stopping=4.0)
    assert world.unload("n1", 0) == Ending(2.0)
    assert world.load("n1", "a", 0) == Ending(30.0)
    assert world.validation("n1", "a", 0) == Verdict(8.0)
    assert world.refusal("ml/train") == Span(0.0)
    assert world.eviction("ml/train", 30.0) == Span(4.0)
    assert world.eviction("ml/train", 3.0) == Span(3.0)
    assert world.remainder("ml/train", 30.0) == Span(70.0)
    assert world.remainder("ml/train", 130.0) == Span(0.0)


def test_a_driver_may_be_odd_and_so_may_a_pod() -> None:
    world = Steady(
        oddities=(
            Oddity(driver="bad", load=Ending(5.0, 1)),
            Oddity(node="n1", attempts=1, unload=Ending(9.0, 1)),
            Oddity(driver="hollow", validation=Verdict(6.0, "cuda")),
            Oddity(pod="ml/gang", refusal=NEVER, eviction=NEVER, remainder=NEVER),
        )
    )
    assert [world.load("n1", driver, 3).exit_code for driver in ("bad", "good")] == [1, 0]
    assert [world.unload("n1", attempt).exit_code for attempt in (0, 1)] == [1, 0]
    assert [world.validation("n1", driver, 0).failed for driver in ("hollow", "bad")] == [
        "cuda",
        "",
    ]
    for pod, known in (("ml/gang", False), ("ml/train", True)):
        assert (world.refusal(pod) != NEVER) == known
        assert (world.eviction(pod, 30.0) != NEVER) == known
        assert (world.remainder(pod, 0.0) != NEVER) == known


def test_a_spread_does_not_take_a_pod_beyond_its_grace() -> None:
    world = Steady(seed=7, stopping=10.0, spread=0.5)
    spans = [world.eviction(f"ml/train-{number}", 12.0).seconds for number in range(50)]
    assert max(span for span in spans if span is not None) == 12.0
    assert len(set(spans)) > 10
