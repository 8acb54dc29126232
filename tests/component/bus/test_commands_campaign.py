"""Invariants of commands under faults, by seed.

A failure names its seed. `SEEDS=17` in the environment runs that one, `SEEDS=0-900` all of those.
"""

import os
from itertools import pairwise

import pytest

from libs.contracts.admission import fingerprint
from libs.contracts.commands import CommandKind, Order
from libs.contracts.journal import Entry, EntryPhase
from libs.testing.simulation import Sim, run
from tests.component.bus.commands_campaign import CommandsCampaign, JournalLife

BATCH = 100


def batches() -> list[range]:
    first, _, end = os.environ.get("SEEDS", f"0-{12 * BATCH}").partition("-")
    seeds = range(int(first), int(end or int(first) + 1))
    return [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]


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
    one, again = play(7), play(7)
    assert one.stored == again.stored
    assert one.effects == again.effects
    assert one.lives == again.lives


def judge(done: CommandsCampaign) -> None:
    assert done.failures == []
    the_slot_never_goes_back(done)
    no_result_twice_or_out_of_order(done)
    for life in done.lives:
        results_are_reported_in_order_and_with_the_same_bytes(life)
        no_result_is_lost(done, life)
        what_is_begun_is_of_this_node_and_of_growing_epochs(life)
    effects_are_in_order(done)
    the_newest_wins(done)


def the_slot_never_goes_back(done: CommandsCampaign) -> None:
    for life in done.stored:
        for before, after in pairwise(life):
            assert after.epoch >= before.epoch, "an older epoch was written over a newer one"
            if after.node_uid == before.node_uid:
                assert after.order >= before.order, "an older op was written over a newer one"


def no_result_twice_or_out_of_order(done: CommandsCampaign) -> None:
    for uid in {uid for uid, _ in done.observer.taken}:
        orders = [result.order for its, result in done.observer.taken if its == uid]
        assert orders == sorted(set(orders)), f"{uid}: {orders}"


def results_are_reported_in_order_and_with_the_same_bytes(life: JournalLife) -> None:
    last: dict[str, Order] = {}
    reported: dict[tuple[str, Order], object] = {}
    for _, report, result in life.results:
        assert result.order >= last.get(report.node_uid, Order(0, 0)), "an older result came later"
        last[report.node_uid] = result.order
        first = reported.setdefault((report.node_uid, result.order), result)
        assert result == first, f"{result.order} ended twice"


def no_result_is_lost(done: CommandsCampaign, life: JournalLife) -> None:
    """Each op that was begun has one end in the journal, and STATE had it.

    Left out: the last op of a journal that was lost, or of a node uid that is no more; and a result
    that a reboot overtook before it was acknowledged, because it is void with its boot.
    """
    began = [(entry.node_uid, entry.order) for entry in life.entries if _is(entry, "started")]
    assert len(began) == len(set(began)), "an op was begun twice"
    ended = {
        (entry.node_uid, entry.order): entry for entry in life.entries if _is(entry, "finished")
    }
    assert len(ended) == sum(1 for entry in life.entries if _is(entry, "finished")), "two ends"
    stored = {(report.node_uid, result.order) for _, report, result in life.results}
    for uid, order in began:
        last = max(its for whose, its in began if whose == uid)
        alive = life is done.lives[-1] and uid == done.uid
        if order == last and not alive:
            continue
        end = ended.get((uid, order))
        assert end is not None, f"{uid} {order} was begun and has no end"
        if end.boot_id == done.boot or (order != last and _same_boot_after(life, uid, order)):
            assert (uid, order) in stored, f"the result of {uid} {order} is lost"


def _is(entry: Entry, phase: str) -> bool:
    return entry.phase == phase


def _same_boot_after(life: JournalLife, uid: str, order: Order) -> bool:
    """Whether the next op began in the boot in which this one ended: then it was acknowledged."""
    mine = [it for it in life.entries if it.node_uid == uid]
    end = next(n for n, it in enumerate(mine) if it.order == order and _is(it, "finished"))
    after = next(it for it in mine[end:] if _is(it, "started"))
    return after.boot_id == mine[end].boot_id


def what_is_begun_is_of_this_node_and_of_growing_epochs(life: JournalLife) -> None:
    epoch = 0
    orders: dict[str, Order] = {}
    for entry in life.entries:
        if entry.phase is EntryPhase.STARTED:
            assert entry.epoch >= epoch, "an op of an older epoch was begun"
            assert entry.order > orders.get(entry.node_uid, Order(0, 0)), "an older op was begun"
            orders[entry.node_uid] = entry.order
        if entry.phase is not EntryPhase.REFUSED:
            epoch = max(epoch, entry.epoch)


def effects_are_in_order(done: CommandsCampaign) -> None:
    last: dict[tuple[int, str], Order] = {}
    kinds: dict[tuple[int, str, Order], str] = {}
    for effect in done.effects:
        command = effect.command
        assert command.node_uid == effect.uid, "a command for another node had an effect"
        same_boot = command.boot_id == effect.boot or command.kind is CommandKind.IDLE
        assert same_boot, "a command for another boot had an effect"
        assert command.epoch == effect.highest, "an effect under an epoch that was over"
        whose = (effect.life, effect.uid)
        assert command.order >= last.get(whose, Order(0, 0)), "an effect of an older op came later"
        last[whose] = command.order
        first = kinds.setdefault((*whose, command.order), fingerprint(command))
        assert first == fingerprint(command), "two commands ran as one op"


def the_newest_wins(done: CommandsCampaign) -> None:
    assert done.last is not None
    assert done.observer.last[done.uid] == done.last.order
    ended = done.lives[-1].results[-1][2]
    assert ended.order == done.last.order
    assert ended.epoch == done.epoch
