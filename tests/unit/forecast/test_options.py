import pytest
from msgspec.structs import replace

from libs.contracts.rollout import Brake, RolloutSpec
from libs.forecast.options import PlanOptions, apply_options, pause_reason
from libs.rollout.views.pool import Build
from tests.unit.rollout.builders import NEW, POOL, VARIANT, done, fleet, node, pool, required


def test_without_a_wish_the_pool_is_as_it_is() -> None:
    given = fleet(pool(), required())
    assert apply_options(given, POOL, PlanOptions()) == given


def test_options_change_the_pool_and_nothing_else() -> None:
    build = Build(label="label-next", install_digest="install-next")
    options = PlanOptions(
        target="next", builds={VARIANT: build}, max_unavailable="10%", max_parallel=3
    )
    given = pool()
    applied = apply_options(fleet(given, required()), POOL, options).pools[POOL]
    assert applied.target == "next"
    assert applied.build("next", VARIANT) == build
    assert applied.build(NEW, VARIANT) == given.build(NEW, VARIANT)
    assert applied.upgrade.max_unavailable == "10%"
    assert applied.upgrade.max_parallel_upgrades == 3
    assert applied.strategy == given.strategy


def test_only_nodes_of_the_pool_and_those_that_it_still_has_a_record_of() -> None:
    other = replace(pool(), key="other")
    nodes = (
        replace(done("node-b"), pool="other"),
        replace(node("node-c"), pool="other"),
        done("node-a"),
    )
    applied = apply_options(fleet((other, pool()), *nodes), POOL, PlanOptions())
    assert list(applied.nodes) == ["node-a", "node-b"]
    assert list(applied.pools) == [POOL, "other"]


@pytest.mark.parametrize("brake", [Brake.PAUSE, Brake.FREEZE])
def test_a_brake_is_taken_as_released(brake: Brake) -> None:
    given = pool()
    assert given.rollout is not None
    held = replace(given, rollout=replace(given.rollout, spec=RolloutSpec(brake=brake)))
    assert pause_reason(held) == f"the brake is {brake}"
    applied = apply_options(fleet(held), POOL, PlanOptions()).pools[POOL]
    assert applied == given
    assert not pause_reason(applied)


def test_auto_upgrade_is_taken_as_on() -> None:
    off = replace(pool(), upgrade=replace(pool().upgrade, auto_upgrade=False))
    assert pause_reason(off) == "autoUpgrade is off"
    assert apply_options(fleet(off), POOL, PlanOptions()).pools[POOL] == pool()


def test_a_pool_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(LookupError, match=f"pool 'else' not found; known pools: {POOL}"):
        apply_options(fleet(pool()), "else", PlanOptions())


@pytest.mark.parametrize("amount", [-1, "many", "120%"])
def test_an_amount_that_is_none_is_refused(amount: int | str) -> None:
    with pytest.raises(ValueError, match=r"maxUnavailable .* is invalid"):
        PlanOptions(max_unavailable=amount)


def test_fewer_than_none_in_parallel_are_refused() -> None:
    with pytest.raises(ValueError, match="maxParallelUpgrades -1 is invalid"):
        PlanOptions(max_parallel=-1)


def test_an_unknown_pool_is_refused() -> None:
    with pytest.raises(LookupError, match="pool 'else' not found; known pools: none"):
        apply_options(fleet(()), "else", PlanOptions())
