"""The audit at the end of the stories about MIG finds faults that are planted there."""

import pytest

from libs.contracts.identities import Writer
from libs.contracts.journal import EntryPhase
from libs.rollout.in_flight import validation
from libs.testing.bus.memory_journal import MemoryJournal
from services.driver.node import mig
from tests.component.scheduler.audited import play_audited
from tests.component.scheduler.test_mig import configure, until_mig_state
from tests.component.scheduler.test_mig_operation import SEVEN, ops, settled
from tests.component.scheduler.world import World


@pytest.mark.dear("a node divides its GPUs again and again, until the audit sees it")
def test_a_node_that_returns_with_another_geometry_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver agent makes no change, and the engine does not compare the evidence."""

    async def story(world: World) -> None:
        await settled(world, "a")
        await configure(world, "a", SEVEN)
        while ops(world, "a", EntryPhase.FINISHED) < 2:  # it is divided again and again
            await world.sleep(0.1)

    def return_nothing(*_args: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(mig, "plan", return_nothing)
    monkeypatch.setattr(validation, "_divide_again", return_nothing)
    with pytest.raises(AssertionError, match=r"^I3: a: .* names the MIG geometry 'none', but"):
        play_audited(story)


def test_a_driver_agent_that_divides_again_after_its_result_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent does not read its journal when it is started again."""

    async def story(world: World) -> None:
        await settled(world, "a")
        await configure(world, "a", SEVEN)
        while not ops(world, "a", EntryPhase.FINISHED):
            await world.sleep(0.0005)
        await world.kill_agents("a", Writer.DRIVER)

        async def read_nothing(_journal: MemoryJournal) -> tuple[()]:
            return ()

        monkeypatch.setattr(MemoryJournal, "open", read_nothing)
        await world.start_agent("a", Writer.DRIVER)
        await until_mig_state(world, "a", "success")

    with pytest.raises(AssertionError, match=r"^I11: .* mig 2\.\d+ started again after it had"):
        play_audited(story, faults=True)
