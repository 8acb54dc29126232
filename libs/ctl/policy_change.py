"""What a policy of a file would change in the cluster, and what of that a plan shows. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.queries import PlanQuery
from libs.ctl.answers import PlannedFile
from libs.ctl.applied_policy import (
    FieldChange,
    applied_spec,
    as_object,
    broken_rules,
    changed_fields,
    parse_applied,
)
from libs.ctl.failures import ExitCode
from libs.ctl.policy_file import FilePolicy, PolicyFile
from libs.ctl.text import plural, some
from libs.kube.resources import CustomObject
from libs.policy.digest import target_digest
from libs.policy.findings import Finding, PolicyVerdict, Severity
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.manifests import ParsedPolicy, parse_object
from libs.policy.owners import NodeLabels
from libs.policy.pool import Pool, pool_key
from libs.policy.pools import assemble_pools
from libs.policy.wanted import InstallMethod, version_of, with_version

_SELECTION: Final = frozenset({"nodeSelector", "nodeAffinity", "default"})
"""Fields of an NVIDIADriver whose effect is which nodes it has."""
_QUERIED: Final = frozenset(
    {"version", "upgradePolicy.maxUnavailable", "upgradePolicy.maxParallelUpgrades"}
)
"""The fields of a driver that the query `plan` carries."""

_COURSE: Final = ("upgradePolicy", "manager")
"""The sections of a driver that say how nodes are upgraded."""

LivePolicies = Mapping[str, Sequence[CustomObject]]
"""The policies in the cluster, by kind."""


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True):
    """A policy of the file, and its pool before and after."""

    file: PolicyFile
    policy: FilePolicy
    has_pod_deletion: bool
    """Whether it has the section `podDeletion`, without which a GPU Operator evicts nothing."""
    before: Pool
    after: Pool
    fields: tuple[FieldChange, ...]
    driver_fields: tuple[FieldChange, ...]
    """Those of them that make another driver, with other pods."""
    others: Mapping[str, tuple[FieldChange, ...]]
    """By title of the file's other policies: their fields that make this driver another one."""
    warnings: tuple[Finding, ...]
    """Those that the file adds."""

    def query(self, given: PlanQuery) -> PlanQuery:
        """Return the query for the file; what is given already overrides the file."""
        version, upgrade = version_of(self.after.driver), self.after.upgrade
        is_new = version != version_of(self.before.driver)
        parallel = given.max_parallel
        driver = msgspec.json.encode(self.after.driver).decode() if self._changes_driver() else ""
        return replace(
            given,
            pool=self.after.key,
            driver_version=given.driver_version or (version if is_new else ""),
            max_unavailable=given.max_unavailable or str(upgrade.max_unavailable),
            max_parallel=upgrade.max_parallel_upgrades if parallel is None else parallel,
            driver=driver,
        )

    def _changes_driver(self) -> bool:
        """Whether the driver changes in more than its version."""
        same = with_version(self.before.driver, version_of(self.after.driver))
        return target_digest(same) != target_digest(self.after.driver)

    def planned_file(self, query: PlanQuery, *, more: frozenset[str] = frozenset()) -> PlannedFile:
        """Return what a plan takes from the file by this query, and what not.

        `more` are further fields of the driver that count in the plan.
        """
        before, after = set(self.before.nodes), set(self.after.nodes)
        version = query.driver_version or version_of(self.after.driver)
        others = (
            f"{each.title} (its other fields)" if each.title in self.others else each.title
            for each in self.file.policies
            if each is not self.policy
        )
        return PlannedFile(
            file=self.file.name,
            policy=self.policy.title,
            version=version,
            max_unavailable=query.max_unavailable,
            max_parallel=query.max_parallel or 0,
            changes_nothing=not self.fields,
            nodes=self.after.nodes,
            joining=tuple(sorted(after - before)),
            leaving=tuple(sorted(before - after)),
            driver_changes=tuple(self._driver_changes(query)),
            not_planned=tuple(self._not_planned(more | _QUERIED | _SELECTION)),
            left_out=(*others, *self.file.left_out),
        )

    def _driver_changes(self, query: PlanQuery) -> Iterator[str]:
        """Yield the fields that make the driver of the query another one."""
        is_overridden = query.driver_version not in ("", version_of(self.after.driver))
        version = f"{self._section}version" if is_overridden else ""
        yield from (str(each) for each in self.driver_fields if each.path != version)
        for title, fields in self.others.items():
            yield from (f"{title}: {each}" for each in fields)

    def _not_planned(self, known: frozenset[str]) -> Iterator[str]:
        """Yield each other field that changes, and what follows from that."""
        paths = {f"{self._section}{name}" for name in known}
        for each in self.fields:
            if each.path not in paths and each not in self.driver_fields:
                yield f"{each}: {self._instead(each)}"
        yield from map(str, self.warnings)

    def _instead(self, change: FieldChange) -> str:
        """Return what a field does that is not planned."""
        if because := change.no_effect_because:
            return f"it has no effect in Sluice, because {because}"
        if change.path.startswith(tuple(f"{self._section}{name}." for name in _COURSE)):
            return "the plan goes by the value of now"
        return "Sluice upgrades no node for it"

    @property
    def _section(self) -> str:
        return "spec.driver." if self.policy.kind is CLUSTER_POLICY else "spec."


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a cluster by the key of their pool, with what follows from them."""

    policies: Mapping[str, ParsedPolicy]
    pools: Mapping[str, Pool]
    verdicts: Mapping[str, PolicyVerdict]


def policy_change(
    file: PolicyFile,
    live: LivePolicies,
    nodes: Iterable[NodeLabels],
    *,
    pool: str,
    name_of: Callable[[FilePolicy], str],
) -> PolicyChange:
    """Return the change to this pool, or to the only one; fail if it cannot be planned.

    `name_of` returns how people know the pool of a policy.
    """
    labels = list(nodes)
    objects = {
        pool_key(kind, each.metadata.name): (kind, each)
        for kind, found in live.items()
        for each in found
    }
    stored = {
        key: parse_object(kind, metadata=each.metadata, spec=each.spec)
        for key, (kind, each) in objects.items()
    }
    in_cluster = {key: each for key, (_, each) in objects.items()}
    wanted = {each.key: parse_applied(each, in_cluster.get(each.key)) for each in file.policies}
    before, after = _cluster(stored, labels), _cluster(stored | wanted, labels)
    for each in file.policies:
        _refuse_errors(file, each, before, after)
    policy = _chosen(file, after, pool, name_of)
    pool_before, pool_after = _pools(file, policy, before, after)
    fields = _changes(policy, before, after)
    return PolicyChange(
        file=file,
        policy=policy,
        has_pod_deletion=_has_pod_deletion(policy, in_cluster.get(policy.key)),
        before=pool_before,
        after=pool_after,
        fields=fields,
        driver_fields=_driver_fields(policy, policy, fields, after),
        others={
            other.title: found
            for other in file.policies
            if other is not policy
            and (found := _driver_fields(other, policy, _changes(other, before, after), after))
        },
        warnings=_new_warnings(policy, before, after),
    )


def _has_pod_deletion(policy: FilePolicy, live: CustomObject | None) -> bool:
    if policy.kind is not CLUSTER_POLICY:
        return True  # the operator adds the section to an NVIDIADriver
    spec = as_object(applied_spec(policy, live))
    for name in ("driver", "upgradePolicy"):
        spec = as_object(spec.get(name))
    return spec.get("podDeletion") is not None


def _cluster(policies: Mapping[str, ParsedPolicy], nodes: Sequence[NodeLabels]) -> _Cluster:
    found = assemble_pools(policies.values(), nodes)
    return _Cluster(
        policies=policies,
        pools={pool.key: pool for pool in found.pools},
        verdicts={pool_key(each.kind, each.name): each for each in found.verdicts},
    )


def _changes(policy: FilePolicy, before: _Cluster, after: _Cluster) -> tuple[FieldChange, ...]:
    """Return the fields that change; none of a policy that is not there yet."""
    old, new = (each.policies.get(policy.key) for each in (before, after))
    if old is None or new is None or old.policy is None or new.policy is None:
        return ()
    shape = policy.kind.spec_shape
    return tuple(changed_fields(shape, old.policy.spec, new.policy.spec))


def _driver_fields(
    policy: FilePolicy, of: FilePolicy, fields: Iterable[FieldChange], after: _Cluster
) -> tuple[FieldChange, ...]:
    """Return the fields of a policy without whose change the driver `of` another one differs.

    What a driver is made of is decided where drivers are told apart, by their digests.
    """
    parsed, pool = after.policies.get(policy.key), after.pools[of.key]
    if parsed is None or parsed.policy is None:
        return ()
    wanted = target_digest(pool.driver)
    found: list[FieldChange] = []
    for each in fields:
        spec = each.undone(parsed.policy.spec)
        undone = replace(parsed, policy=replace(parsed.policy, spec=spec))
        pools = _cluster({**after.policies, policy.key: undone}, ()).pools
        other = pools.get(of.key)
        if other is not None and target_digest(other.driver) != wanted:
            found.append(each)
    return tuple(found)


def _new_warnings(policy: FilePolicy, before: _Cluster, after: _Cluster) -> tuple[Finding, ...]:
    known = before.verdicts[policy.key].findings
    return tuple(
        each
        for each in after.verdicts[policy.key].findings
        if each.severity is Severity.WARNING and each not in known
    )


def _refuse_errors(file: PolicyFile, policy: FilePolicy, before: _Cluster, after: _Cluster) -> None:
    """Fail with the first error, which would keep the policy from being stored or carried out.

    Errors that the policy in the cluster has already come last, and are said to be such.
    """
    broken = broken_rules(_changes(policy, before, after))
    verdict = before.verdicts.get(policy.key)
    known = () if verdict is None else verdict.errors
    found = [*after.verdicts[policy.key].errors, *broken]
    if errors := sorted(found, key=lambda each: each in known):
        first, *others = errors
        more = f"; and {plural(len(others), 'more error')}" if others else ""
        if first in known:
            more += (
                "; the policy in the cluster has that error already: a file that mends it can be"
                " planned"
            )
        raise file.refusal(f"{policy.title}: {first}{more}")


def _chosen(
    file: PolicyFile, after: _Cluster, pool: str, name_of: Callable[[FilePolicy], str]
) -> FilePolicy:
    """Return the policy that makes this pool, or the only one that makes any."""
    making = {name_of(each): each for each in file.policies if each.key in after.pools}
    known = ", ".join(sorted(making))
    if not making:
        raise file.refusal("; ".join(_why_no_pool(each, after) for each in file.policies))
    if pool and pool not in making:
        raise file.refusal(f"it makes no pool {pool!r}; its pools: {known}", ExitCode.NOT_FOUND)
    if not pool and len(making) > 1:
        raise file.refusal(f"it makes several pools; name one of: {known}")
    return making[pool] if pool else next(iter(making.values()))


def _why_no_pool(policy: FilePolicy, after: _Cluster) -> str:
    reasons = after.verdicts[policy.key].reasons
    why = str(reasons[0]) if reasons else "spec.driver.useNvidiaDriverCRD is true"
    return f"{policy.title} makes no pool: {why}"


def _pools(
    file: PolicyFile, policy: FilePolicy, before: _Cluster, after: _Cluster
) -> tuple[Pool, Pool]:
    """Return the pool of a policy before and after; fail if there is no upgrade to plan."""
    pool = after.pools[policy.key]
    if pool.driver.method is InstallMethod.PRE_INSTALLED:
        problem = "spec.driver.enabled is false, so there is no driver to upgrade to"
        raise file.refusal(f"{policy.title}: {problem}")
    if policy.key not in before.pools:
        nodes = pool.nodes
        selected = f"{plural(len(nodes), 'node')} ({some(nodes)})" if nodes else "no node"
        raise file.refusal(
            f"{policy.title} makes a pool that is not in the cluster yet, and only one that is can"
            f" be planned; applied, it selects {selected}",
            ExitCode.NOT_FOUND,
        )
    return before.pools[policy.key], pool
