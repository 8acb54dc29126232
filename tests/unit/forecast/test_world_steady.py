"""The steady world: always the usual answer, except for overrides."""

import pytest

from libs.forecast.world import NEVER, RUNS_FOREVER, ProcessEnd, TimeSpan, WorldModel
from libs.testing.stage.worlds import SteadyWorld, WorldOverride


def test_every_answer_has_its_usual_time() -> None:
    world: WorldModel = SteadyWorld(
        pull_seconds=3.0, init_seconds=2.0, ready_seconds=5.0, stop_seconds=4.0, boot_seconds=60.0
    )
    assert world.pull("n1", "driver", "main") == TimeSpan(3.0)
    assert world.init("n1", "driver", "gate", 0) == ProcessEnd(2.0)
    assert world.ready("n1", "driver", "main", 0) == TimeSpan(5.0)
    assert world.run("n1", "driver", "main", 0) == RUNS_FOREVER
    assert world.job("n1", "train", "main", 0) == ProcessEnd(60.0, 0)
    assert world.stop("n1", "driver", "main") == TimeSpan(4.0)
    assert world.boot("n1", 0) == TimeSpan(60.0)


def test_an_override_applies_only_to_the_names_it_gives() -> None:
    world = SteadyWorld(
        overrides=(WorldOverride(node="n1", workload="driver", container="main", ready=NEVER),)
    )
    assert world.ready("n1", "driver", "main", 0) == NEVER
    for other in (("n2", "driver", "main"), ("n1", "plugin", "main"), ("n1", "driver", "side")):
        assert world.ready(*other, 0) == TimeSpan(1.0)
    assert world.run("n1", "driver", "main", 0) == RUNS_FOREVER


def test_first_attempts_may_fail_and_later_ones_work() -> None:
    world = SteadyWorld(
        overrides=(WorldOverride(workload="driver", first_attempts=2, run=ProcessEnd(1.0, 1)),)
    )
    answers = [world.run("n1", "driver", "main", attempt) for attempt in range(4)]
    assert answers == [ProcessEnd(1.0, 1), ProcessEnd(1.0, 1), RUNS_FOREVER, RUNS_FOREVER]


def test_the_first_override_with_an_answer_applies() -> None:
    world = SteadyWorld(
        overrides=(
            WorldOverride(node="n1", stop=TimeSpan(9.0)),
            WorldOverride(node="n1", boot=NEVER),
            WorldOverride(boot=TimeSpan(300.0)),
        )
    )
    assert world.boot("n1", 0) == NEVER
    assert world.boot("n2", 0) == TimeSpan(300.0)
    assert world.stop("n1", "driver", "main") == TimeSpan(9.0)


def _spans(world: SteadyWorld) -> list[float]:
    spans = [world.ready(f"n{number}", "driver", "main", 0).seconds for number in range(200)]
    return [span for span in spans if span is not None]


def test_jitter_lengthens_each_time_differently_and_reproducibly() -> None:
    spans = _spans(SteadyWorld(seed=7, ready_seconds=10.0, jitter=0.5))
    assert spans == _spans(SteadyWorld(seed=7, ready_seconds=10.0, jitter=0.5))
    assert len(set(spans)) == 200
    assert all(10.0 <= span < 15.0 for span in spans)
    assert sum(spans) / 200 == pytest.approx(12.5, abs=0.3)
