"""Invariants of commands under faults, by seed.

A failure names its seed. `SEEDS=17` in the environment runs that one, `SEEDS=0-900` all of those.
"""

import os
from itertools import pairwise
from typing import Any

import pytest

from libs.contracts.admission import fingerprint
from libs.contracts.commands import CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.testing.simulation import Sim, run
from tests.component.bus.commands_campaign import CommandsCampaign, JournalLife

BATCH = 100
IN_EACH_RUN = 2
"""Batches of each run; one has every fault many times."""

DEAR = pytest.mark.soak("more seeds of the campaign; each run plays the first ones")


def batches() -> list[Any]:
    wanted = os.environ.get("SEEDS", "")
    first, _, end = (wanted or f"0-{6 * BATCH}").partition("-")
    seeds = range(int(first), int(end or int(first) + 1))
    found = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    more = () if wanted else found[IN_EACH_RUN:]
    return [pytest.param(each, marks=DEAR if each in more else ()) for each in found]


def play(seed: int) -> CommandsCampaign:
    played: list[CommandsCampaign] = []

    async def main(sim: Sim) -> None:
        played.append(CommandsCampaign(sim))
        await played[0].play()

    run(main, seed=seed)
    return played[0]


@pytest.mark.parametrize("seeds", batches(), ids=str)
def test_campaign(seeds: range) -> None:
    for seed in seeds:
        try:
            judge(play(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_seed_repeats_its_run() -> None:
    first, second = play(7), play(7)
    assert first.stored == second.stored
    assert first.effects == second.effects
    assert first.lives == second.lives


def judge(campaign: CommandsCampaign) -> None:
    assert campaign.failures == []
    assert_slot_orders_increase(campaign)
    assert_results_are_observed_once_in_order(campaign)
    for life in campaign.lives:
        assert_results_are_reported_in_order(life)
        assert_no_result_is_lost(campaign, life)
        assert_started_epochs_increase(life)
    assert_effects_are_in_order(campaign)
    assert_the_newest_command_wins(campaign)


def assert_slot_orders_increase(campaign: CommandsCampaign) -> None:
    for life in campaign.stored:
        for before, after in pairwise(life):
            assert after.epoch >= before.epoch, "an older epoch was written over a newer one"
            if after.node_uid == before.node_uid:
                assert after.order >= before.order, "an older op was written over a newer one"


def assert_results_are_observed_once_in_order(campaign: CommandsCampaign) -> None:
    for uid in {uid for uid, _ in campaign.observer.taken}:
        orders = [result.order for other, result in campaign.observer.taken if other == uid]
        assert orders == sorted(set(orders)), f"{uid}: {orders}"


def assert_results_are_reported_in_order(life: JournalLife) -> None:
    last: dict[str, Order] = {}
    reported: dict[tuple[str, Order], object] = {}
    for _, report, result in life.results:
        assert result.order >= last.get(report.node_uid, Order(0, 0)), "an older result came later"
        last[report.node_uid] = result.order
        first = reported.setdefault((report.node_uid, result.order), result)
        assert result == first, f"{result.order} ended twice"


def assert_no_result_is_lost(campaign: CommandsCampaign, life: JournalLife) -> None:
    """Assert that each started op has one end in the journal, which was reported in STATE.

    Exempt are the last op of a lost journal or of an earlier node uid, and a result that was not
    acknowledged before a reboot, because results are valid in one boot only.
    """
    started = [(entry.node_uid, entry.order) for entry in life.entries if _is(entry, "started")]
    assert len(started) == len(set(started)), "an op was started twice"
    ended = {
        (entry.node_uid, entry.order): entry for entry in life.entries if _is(entry, "finished")
    }
    assert len(ended) == sum(1 for entry in life.entries if _is(entry, "finished")), "two ends"
    stored = {(report.node_uid, result.order) for _, report, result in life.results}
    for uid, order in started:
        last = max(each for other, each in started if other == uid)
        alive = life is campaign.lives[-1] and uid == campaign.uid
        if order == last and not alive:
            continue
        end = ended.get((uid, order))
        assert end is not None, f"{uid} {order} was started and has no end"
        if end.boot_id == campaign.boot or (order != last and _same_boot_after(life, uid, order)):
            assert (uid, order) in stored, f"the result of {uid} {order} is lost"


def _is(entry: Entry, phase: str) -> bool:
    return entry.phase == phase


def _same_boot_after(life: JournalLife, uid: str, order: Order) -> bool:
    """Return whether the next op started in the same boot: then the result was acknowledged."""
    entries = [entry for entry in life.entries if entry.node_uid == uid]
    end = next(
        index
        for index, entry in enumerate(entries)
        if entry.order == order and _is(entry, "finished")
    )
    after = next(entry for entry in entries[end:] if _is(entry, "started"))
    return after.boot_id == entries[end].boot_id


def assert_started_epochs_increase(life: JournalLife) -> None:
    epoch = 0
    orders: dict[str, Order] = {}
    for entry in life.entries:
        if entry.phase is EntryPhase.STARTED:
            assert entry.epoch >= epoch, "an op of an older epoch was started"
            assert entry.order > orders.get(entry.node_uid, Order(0, 0)), "an older op was started"
            orders[entry.node_uid] = entry.order
        if entry.phase is not EntryPhase.REFUSED:
            epoch = max(epoch, entry.epoch)


def assert_effects_are_in_order(campaign: CommandsCampaign) -> None:
    last: dict[tuple[int, str], Order] = {}
    kinds: dict[tuple[int, str, Order], str] = {}
    for effect in campaign.effects:
        command = effect.command
        assert command.node_uid == effect.uid, "a command for another node had an effect"
        same_boot = command.boot_id == effect.boot or command.kind is CommandKind.IDLE
        assert same_boot, "a command for another boot had an effect"
        assert command.epoch == effect.highest, "an effect of an older epoch"
        owner = (effect.life, effect.uid)
        assert command.order >= last.get(owner, Order(0, 0)), "an effect of an older op came later"
        last[owner] = command.order
        first = kinds.setdefault((*owner, command.order), fingerprint(command))
        assert first == fingerprint(command), "two commands ran as one op"


def assert_the_newest_command_wins(campaign: CommandsCampaign) -> None:
    assert campaign.last is not None
    assert campaign.observer.last[campaign.uid] == campaign.last.order
    ended = campaign.lives[-1].results[-1][2]
    assert ended.order == campaign.last.order
    assert ended.epoch == campaign.epoch
