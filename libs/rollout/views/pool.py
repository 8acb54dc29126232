"""One pool: what its policy wants, which builds exist, its Rollout, and what that allows now."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.rollout import InFlight, RolloutSpec, RolloutStatus
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import UpgradePolicy
from libs.policy.wanted import InstallMethod


class PoolConstraints(msgspec.Struct, frozen=True, kw_only=True):
    leading: bool = True
    """Our epoch is in the Rollout. Otherwise nothing is done to any node of the pool."""
    may_mark_required: bool = True
    """Needed upgrades are written as `upgrade-required`; False where no node was ever upgraded."""
    paused: str = ""
    """Why nothing starts, for a person; empty: nodes may start."""
    frozen: str = ""
    """Why no node changes its state, and deadlines are extended, for a person; empty: they do."""
    frozen_seconds: float = 0.0
    """How long the pool was frozen in total: deadlines move by what was added after they were set.
    """
    in_flight: Mapping[str, InFlight] = {}
    """Granted nodes as the API server has them, by node uid."""
    may_begin: frozenset[str] = frozenset()
    """Uids of granted nodes that still fit into the budget."""
    to_release: Mapping[str, str] = {}
    """Uids of nodes in flight that must be released unchanged if they have not started, and why."""
    halted: Mapping[str, str] = {}
    """Targets on which no node may start, and why."""
    proven: frozenset[str] = frozenset()
    """Targets that were proven and are not halted."""
    last_good: str = ""
    """The newest proven target, which joining nodes get while the wanted one is halted."""

    def admits(self, target: str) -> bool:
        return target not in self.halted


class Readiness(StrEnum):
    """Whether a build can be trusted to be what a node would get."""

    SETTLED = "settled"
    UNSETTLED = "unsettled"
    """The build changed, and its controller has not caught up."""
    MISSING = "missing"
    """It has no DaemonSet or artefact."""


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A target as nodes of one variant get it."""

    label: str
    """The driver label that selects it."""
    install_digest: str = ""
    artefact: str = ""
    """With the host method: the digest of what is installed."""
    image: str = ""
    """The driver's image, which is on a node before the node is drained; empty: there is none."""
    readiness: Readiness = Readiness.SETTLED
    detail: str = ""
    """Why it is not settled, for a person."""


EMPTY_STATUS: Final = RolloutStatus()
"""That of a Rollout that does not exist, or was created and not written since."""
_EMPTY_SPEC: Final = RolloutSpec()


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    revision: str
    spec: RolloutSpec = RolloutSpec()
    brake_set_by: str = ""
    """Who set the brake, as far as known, and why: for people only."""
    brake_reason: str = ""
    generation: int = 0
    status: RolloutStatus = RolloutStatus()
    has_finalizer: bool = False
    write_pending: bool = False
    """A write of ours is not answered yet."""


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, without its nodes."""

    key: str
    uid: str
    target: str = ""
    """The target that the policy wants now."""
    version: str = ""
    """The version of its driver, for people."""
    method: InstallMethod = InstallMethod.CONTAINER
    builds: Mapping[str, Mapping[str, Build]] = {}
    """By target, then by variant: the wanted one, and what is left of earlier targets."""
    upgrade: UpgradePolicy = UpgradePolicy()
    auto_upgrade_off_by: str = ""
    """Who switched `autoUpgrade` off; empty: it is on, or that is not recorded."""
    strategy: StrategySpec = StrategySpec()
    validation_pod: bool = False
    """A pod that asks for a GPU has to confirm the validation of a node."""
    errors: tuple[str, ...] = ()
    """What is wrong with the policy, for a person: nothing new starts."""
    gone: bool = False
    """The policy was deleted."""
    rollout: RolloutView | None = None
    constraints: PoolConstraints = PoolConstraints()
    """Not observed: computed by `decide` before the steps of nodes."""

    @property
    def rollout_status(self) -> RolloutStatus:
        """What the scheduler wrote last."""
        return EMPTY_STATUS if self.rollout is None else self.rollout.status

    @property
    def rollout_spec(self) -> RolloutSpec:
        """What people want of the rollout."""
        return _EMPTY_SPEC if self.rollout is None else self.rollout.spec

    def build(self, target: str, variant: str) -> Build | None:
        return self.builds.get(target, {}).get(variant)
