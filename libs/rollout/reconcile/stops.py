"""Why nothing starts in a pool at all: the brake, the policy, or somebody else's operator.

Must not know nodes.
"""

import msgspec

from libs.contracts.rollout import Brake, RolloutSpec
from libs.contracts.waits import WaitCode
from libs.rollout.views.fleet import Instant
from libs.rollout.views.pool import PoolView
from libs.rollout.waiting import WHO


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why somebody waits, and who can end it."""

    code: WaitCode
    detail: str
    who: str


def because(code: WaitCode, detail: str, who: str = "") -> Stop:
    """To be ended by those whom the code names, unless it is said who."""
    return Stop(code=code, detail=detail, who=who or WHO[code])


def stop(pool: PoolView, now: Instant) -> Stop | None:
    """Why nothing starts here now."""
    if pool.gone:
        return because(WaitCode.POLICY_GONE, f"the policy of pool {pool.key} was deleted")
    if now.sight.foreign_operator:
        return because(WaitCode.FOREIGN_OPERATOR, now.sight.foreign_operator)
    if spec_of(pool).brake is Brake.PAUSE:
        return because(WaitCode.PAUSED, f"the brake of Rollout {pool.key} is Pause")
    if not pool.upgrade.auto_upgrade:
        return because(WaitCode.PAUSED, "autoUpgrade is off in the policy")
    if pool.held:
        return because(WaitCode.PAUSED, "; ".join(pool.held), "whoever writes the policy")
    return None


def spec_of(pool: PoolView) -> RolloutSpec:
    """People's part of the Rollout."""
    return RolloutSpec() if pool.rollout is None else pool.rollout.spec


def was_on(pool: PoolView) -> bool:
    """Whether the policy ever let nodes move by themselves: only then do we write wishes down."""
    return pool.upgrade.auto_upgrade or bool(pool.rollout and pool.rollout.status.target)
