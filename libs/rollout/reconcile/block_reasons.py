"""Why nothing starts in a pool at all: the brake, the policy, or somebody else's operator.

Must not know nodes.
"""

import msgspec

from libs.contracts.rollout import Brake, RolloutSpec
from libs.contracts.waits import WaitCode
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView
from libs.rollout.wait_reasons import RESOLVED_BY


class BlockReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why somebody waits, and who can end it."""

    code: WaitCode
    detail: str
    who: str


def block_reason(code: WaitCode, detail: str, who: str = "") -> BlockReason:
    """To be ended by those whom the code names, unless it is said who."""
    return BlockReason(code=code, detail=detail, who=who or RESOLVED_BY[code])


def pool_block_reason(pool: PoolView, now: Instant) -> BlockReason | None:
    """Why nothing starts here now."""
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
    """People's part of the Rollout."""
    return RolloutSpec() if pool.rollout is None else pool.rollout.spec


def was_enabled(pool: PoolView) -> bool:
    """Whether the policy ever let nodes move by themselves: only then do we write wishes down."""
    return pool.upgrade.auto_upgrade or bool(pool.rollout and pool.rollout.status.target)
