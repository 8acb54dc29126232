"""GPUs are divided alone, in an upgrade and after a reboot, with a death at every sub-step."""

import os
import tempfile
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final
from unittest.mock import patch

import msgspec

from libs.testing.nvml import VARIABLE
from tests.component import world as worlds
from tests.component.scheduler.audited import Auditor, problems
from tests.component.scheduler.mig_deaths import NODE, DyingWorld
from tests.component.scheduler.test_mig_operation import MIXED, NONE, SEVEN
from tests.component.scheduler.world import FAST

Change = Callable[[DyingWorld, str], Coroutine[Any, Any, None]]


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One change after another, each with a death at the same sub-step, then at the next one."""

    change: Change
    configs: tuple[str, ...]
    """The configuration that each change leads to; they are repeated."""
    loses_power: bool = False


CHANGES: Final[Mapping[str, tuple[Change, tuple[tuple[str, ...], ...]]]] = {
    "alone": (DyingWorld.configure, ((SEVEN, NONE), (SEVEN, MIXED), (MIXED, NONE))),
    "upgrade": (DyingWorld.upgrade, ((SEVEN, MIXED), (SEVEN,), (NONE, SEVEN))),
    "reboot": (DyingWorld.configure_and_reboot, ((SEVEN,), (MIXED,))),
}
STORIES: Final[Mapping[str, Story]] = {
    f"{name}, {' and '.join(configs)}, {'power' if loses_power else 'agent'}": Story(
        change=change, configs=configs, loses_power=loses_power
    )
    for name, (change, all_configs) in CHANGES.items()
    for configs in all_configs
    for loses_power in (False, True)
}


class Deaths(msgspec.Struct, frozen=True, kw_only=True):
    deaths: int
    problems: list[str]
    """What the audit found."""


def play_deaths(story: Story, sub_steps: Iterable[int] | None = None) -> Deaths:
    """Play a story, by default with a death at each sub-step until nothing dies any more."""

    async def play(world: DyingWorld) -> Deaths:
        auditor = Auditor(world)
        world.loses_power = story.loses_power
        try:
            await world.set_up()
            for sub_step in count() if sub_steps is None else sub_steps:
                if not await _play_once(world, story, sub_step):
                    break
            found = problems(await auditor.judge(faults=True), faults=True)
        finally:
            await world.power_off(NODE)  # which ends the processes that read the stand-in
        found += [str(each) for each in world.machine.incidents]
        return Deaths(deaths=world.sub_steps.deaths, problems=found)

    with _stand_in():
        return worlds.run_world(play, lambda sim, folder: DyingWorld(sim, folder, FAST))


async def _play_once(world: DyingWorld, story: Story, sub_step: int) -> int:
    """Make each change, with a death at this sub-step; return how often it happened."""
    before = world.sub_steps.deaths
    for config in story.configs:
        await story.change(world, config)
        world.sub_steps.arm(sub_step)
        await world.until_at_rest(config)
        world.sub_steps.disarm()
        await world.check(config)
    return world.sub_steps.deaths - before


@contextmanager
def _stand_in() -> Generator[None]:
    """Name the file of the machine's stand-in to the processes that read it."""
    with (
        tempfile.TemporaryDirectory(prefix="sluice-") as folder,
        patch.dict(os.environ, {VARIABLE: f"{folder}/gpus"}),
    ):
        yield
