"""The driver agent is killed while it divides GPUs through pynvml and the stand-in: a sample.

`make soak ARGS=mig` lets agent and machine die at every sub-step of every story.
"""

import pytest

from libs.testing.nvml import NotBuilt, library
from tests.component.scheduler.mig_stories import STORIES, play_deaths

SAMPLE = {
    "alone, all-1g.10gb and all-disabled, agent": (13,),
    "alone, all-1g.10gb and all-balanced, agent": (21,),
    "alone, all-balanced and all-disabled, power": (8,),
    "upgrade, all-1g.10gb and all-balanced, agent": (3, 17),
    "upgrade, all-1g.10gb, power": (11,),
    "reboot, all-1g.10gb, agent": (0, 26),
}
"""The sub-steps by story."""


@pytest.fixture(autouse=True)
def stand_in() -> None:
    try:
        library()
    except NotBuilt as error:
        pytest.skip(str(error))


@pytest.mark.dear("real processes read the stand-in, and each death is played to its end")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_death_while_gpus_are_divided_changes_nothing_but_the_time(name: str) -> None:
    story, sub_steps = STORIES[name], SAMPLE[name]
    result = play_deaths(story, sub_steps)
    assert not result.problems
    assert result.deaths == len(sub_steps) * len(story.configs)
