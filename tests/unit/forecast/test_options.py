import pytest
from msgspec.structs import replace

from libs.forecast.options import PlanOptions, apply_options
from libs.rollout.views.pool import Build
from tests.unit.rollout.builders import NEW, POOL, VARIANT, done, fleet, node, pool, required


def test_default_options_leave_the_pool_unchanged() -> None:
    original = fleet(pool(), required())
    assert apply_options(original, POOL, PlanOptions()) == original


def test_options_change_the_pool_and_nothing_else() -> None:
    build = Build(label="label-next", install_digest="install-next")
    options = PlanOptions(
        target="next", builds={VARIANT: build}, max_unavailable="10%", max_parallel=3
    )
    original = pool()
    applied = apply_options(fleet(original, required()), POOL, options).pools[POOL]
    assert applied.target == "next"
    assert applied.build("next", VARIANT) == build
    assert applied.build(NEW, VARIANT) == original.build(NEW, VARIANT)
    assert applied.upgrade.max_unavailable == "10%"
    assert applied.upgrade.max_parallel_upgrades == 3
    assert applied.strategy == original.strategy


def test_only_nodes_of_the_pool_or_with_its_record_are_kept() -> None:
    other = replace(pool(), key="other")
    nodes = (
        replace(done("node-b"), pool="other"),
        replace(node("node-c"), pool="other"),
        done("node-a"),
    )
    applied = apply_options(fleet((other, pool()), *nodes), POOL, PlanOptions())
    assert list(applied.nodes) == ["node-a", "node-b"]
    assert list(applied.pools) == [POOL, "other"]


def test_an_unknown_pool_is_reported_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match=f"pool 'else' not found; known pools: {POOL}"):
        apply_options(fleet(pool()), "else", PlanOptions())


@pytest.mark.parametrize("amount", [-1, "many", "120%"])
def test_an_invalid_max_unavailable_is_refused(amount: int | str) -> None:
    with pytest.raises(ValueError, match=r"maxUnavailable .* is invalid"):
        PlanOptions(max_unavailable=amount)


def test_a_negative_parallel_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="maxParallelUpgrades -1 is invalid"):
        PlanOptions(max_parallel=-1)


def test_a_pool_of_an_empty_fleet_is_refused() -> None:
    with pytest.raises(LookupError, match="pool 'else' not found; known pools: none"):
        apply_options(fleet(()), "else", PlanOptions())
