"""The bounds of docs/states.md#harm, counted from what happens to nodes, without the engine.

Nodes are named by uid. The oracle reads no status of a Rollout.
"""

from collections.abc import Mapping, Set

import msgspec
from msgspec.structs import replace


class HarmBoundExceeded(Exception):
    pass


class TargetHarm(msgspec.Struct, frozen=True, kw_only=True):
    """Harm done by a target, from its first grant until it is proven and complete."""

    threshold: int
    accepted: int = 0
    failed: frozenset[str] = frozenset()
    validated: frozenset[str] = frozenset()
    proven: bool = False
    limit: int | None = None
    """The most nodes that can fail, set when the target is halted."""

    @property
    def allowance(self) -> int:
        """The number of nodes that may be in flight or failed."""
        return self.accepted + self.threshold

    @property
    def halted(self) -> bool:
        return len(self.failed) >= self.allowance


class HarmOracle(msgspec.Struct, frozen=True, kw_only=True):
    """Harm done in a pool."""

    targets: Mapping[str, TargetHarm] = {}
    first_failures: Mapping[str, str] = {}
    """By uid of a failed node: the target on which it failed first."""

    def _with(self, target: str, harm: TargetHarm) -> "HarmOracle":
        return replace(self, targets={**self.targets, target: harm})

    @property
    def halted(self) -> frozenset[str]:
        return frozenset(target for target, harm in self.targets.items() if harm.halted)

    def with_target(self, target: str, threshold: int, accepted: int) -> "HarmOracle":
        """Count a target from its first grant."""
        return self._with(target, TargetHarm(threshold=threshold, accepted=accepted))

    def without_target(self, target: str) -> "HarmOracle":
        """Drop a target that the Rollout no longer lists."""
        harm = self.targets[target]
        if harm.halted or not harm.proven:
            raise HarmBoundExceeded(
                f"the Rollout dropped {target} after {len(harm.failed)} failures"
            )
        return replace(
            self,
            targets={key: kept for key, kept in self.targets.items() if key != target},
        )

    def with_release(self, target: str, accepted: int, in_flight: frozenset[str]) -> "HarmOracle":
        """Accept failures; validated nodes count for the new proof while they are in flight."""
        harm = self.targets[target]
        kept = harm.validated & in_flight
        harm = replace(harm, accepted=accepted, validated=kept, limit=None)
        return self._with(target, replace(harm, proven=len(kept) >= harm.threshold))

    def check_growth(self, target: str, before: set[str], after: set[str]) -> None:
        """Check the allowance of an unproven target if further nodes are in flight to it."""
        harm = self.targets.get(target)
        if harm is None or harm.proven or not after - before - harm.failed:
            return
        if len(after | harm.failed) > harm.allowance:
            raise HarmBoundExceeded(
                f"{target} is unproven, {sorted(after)} are in flight and {sorted(harm.failed)}"
                f" failed: more than {harm.allowance}"
            )

    def with_failure(self, uid: str, target: str, others_started: int) -> "HarmOracle":
        """Count a failure after the start, while other nodes have started or are about to."""
        first_target = self.first_failures.get(uid, target)
        oracle = replace(self, first_failures={**self.first_failures, uid: first_target})
        if first_target != target:
            return oracle
        harm = self.targets[target]
        harm = replace(harm, failed=harm.failed | {uid})
        limit = harm.limit
        if limit is None:
            limit = harm.allowance
            if harm.halted:
                # A target that is halted although it was proven cannot recall started nodes.
                limit += others_started if harm.proven else 0
                harm = replace(harm, limit=limit)
        if len(harm.failed) > limit:
            raise HarmBoundExceeded(f"{sorted(harm.failed)} failed on {target}: more than {limit}")
        return oracle._with(target, harm)

    def without_node(self, uid: str, known: Set[str]) -> "HarmOracle":
        """Drop the failures of a deleted node, except on targets whose record has them."""
        targets = {
            target: harm
            if target in known
            else replace(harm, failed=harm.failed - {uid}, limit=None)
            for target, harm in self.targets.items()
        }
        return replace(self, targets=targets)

    def with_validation(self, uid: str, target: str, *, outside: bool) -> "HarmOracle":
        first_failures = {
            failed_uid: first_target
            for failed_uid, first_target in self.first_failures.items()
            if failed_uid != uid
        }
        oracle = replace(self, first_failures=first_failures)
        harm = self.targets.get(target)
        if outside or harm is None or uid in harm.failed or uid in self.first_failures:
            return oracle
        if len(harm.validated) >= harm.threshold:
            return oracle
        harm = replace(harm, validated=harm.validated | {uid})
        proven = harm.proven or len(harm.validated) >= harm.threshold
        return oracle._with(target, replace(harm, proven=proven))
