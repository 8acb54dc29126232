"""A failed node whose driver goes on crashing: nothing is decided about it until it is up.

That may last for the whole of a play, with a crash every few minutes.
"""

from msgspec.structs import replace

from libs.contracts.node import UpgradeState
from libs.rollout.views.node import NodeView


def crashes_on(before: NodeView | None, after: NodeView | None) -> bool:
    """Whether it failed and rests, and nothing but its driver's crashes is other than before."""
    return (
        before is not None
        and after is not None
        and after.state == UpgradeState.UPGRADE_FAILED
        and after.lease is None
        and not any(pod.ready for pod in before.driver_pods + after.driver_pods)
        and replace(after, driver_pods=before.driver_pods) == before
    )
