"""Why nothing starts in a pool at all: the brake, the policy, or a foreign operator."""

import msgspec

from libs.contracts.node import WaitCode
from libs.contracts.rollout import Brake, RolloutSpec
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import RESOLVED_BY


class BlockReason(msgspec.Struct, frozen=True, kw_only=True):
    code: WaitCode
    detail: str
    who: str


def block_reason(code: WaitCode, detail: str, who: str = "") -> BlockReason:
    """Return the reason; `who` defaults to the entry of its code."""
    return BlockReason(code=code, detail=detail, who=who or RESOLVED_BY[code])


def pool_block_reason(pool: PoolView, now: Instant) -> BlockReason | None:
    if pool.gone:
        return block_reason(WaitCode.POLICY_GONE, f"the policy of pool {pool.key} was deleted")
    if now.visibility.foreign_operator:
        return block_reason(WaitCode.FOREIGN_OPERATOR, now.visibility.foreign_operator)
    if spec_of(pool).brake is Brake.PAUSE:
        return block_reason(WaitCode.PAUSED, f"Rollout {pool.key} is paused (spec.brake: Pause)")
    if not pool.upgrade.auto_upgrade:
        return block_reason(WaitCode.PAUSED, "autoUpgrade is off in the policy")
    if pool.held:
        return block_reason(WaitCode.PAUSED, "; ".join(pool.held), "the author of the policy")
    return None


def spec_of(pool: PoolView) -> RolloutSpec:
    return RolloutSpec() if pool.rollout is None else pool.rollout.spec


def was_enabled(pool: PoolView) -> bool:
    """Whether the policy ever upgraded nodes by itself: only then are they marked."""
    return pool.upgrade.auto_upgrade or bool(pool.rollout and pool.rollout.status.target)
