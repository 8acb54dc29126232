"""The driver version that a pool's policy wants, and writing another one there."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from libs.contracts.rollout import Brake, release_command
from libs.ctl.brakes import halted_targets
from libs.ctl.cluster import Cluster
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.field_owners import Field, owner_of, refuse_to_take
from libs.ctl.text import plural
from libs.fleet.pools import resume_command
from libs.kube import views
from libs.kube.resources import Resource, custom_resource
from libs.policy.driver_checks import misnamed_version
from libs.policy.kinds.cluster_policy import CLUSTER_POLICY
from libs.policy.kinds.common import Kind
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.pool import pool_key


class DriverPolicy(views.Object, frozen=True, kw_only=True):
    """A policy that names a driver version."""

    spec: dict[str, Any] = {}


class VersionOwner(msgspec.Struct, frozen=True):
    """A kind of policy, and where it names the version."""

    kind: Kind
    field: Field

    @property
    def resource(self) -> Resource[DriverPolicy]:
        return custom_resource(self.kind, DriverPolicy)


_VALUE: Final = "driver.version"
"""In the values of the charts of Sluice and NVIDIA, for both kinds."""
_OWNERS: Final = (
    VersionOwner(CLUSTER_POLICY, Field(path=("spec", "driver", "version"), value=_VALUE)),
    VersionOwner(NVIDIA_DRIVER, Field(path=("spec", "version"), value=_VALUE)),
)


_BRAKED: Final = {
    Brake.PAUSE: "the pool is paused: nothing starts",
    Brake.FREEZE: "the pool is frozen: no node moves",
}


async def stops_of(cluster: Cluster, pool: str, version: str) -> str:
    """Return what keeps nodes from a version, with what ends it, to follow a sentence.

    Nothing where the Rollout of the pool is not there or cannot be read. A version that failed
    before stays halted, also after another was wanted.
    """
    with suppress(Failure):
        rollouts = await cluster.rollouts()
        versions = await cluster.versions(rollouts)
        of_pool = [each for each in rollouts if each.metadata.name == pool]
        brakes = {each.spec.brake for each in of_pool} & _BRAKED.keys()
        stops = [f"{_BRAKED[brake]} until `{resume_command(pool)}`" for brake in brakes]
        halted = [each for each in halted_targets(of_pool, versions) if each.version == version]
        for each in halted[:1]:
            harmed = len(each.record.harmed)
            command = release_command(pool, version, harmed)
            stops.append(
                f"driver {version} is halted, as {plural(harmed, 'node')} failed on it before: no"
                f" node starts on it until `{command}`"
            )
        return "".join(f"; {each}" for each in stops)
    return ""


async def policy_of(cluster: Cluster, pool: str) -> tuple[VersionOwner, DriverPolicy]:
    """Return the policy of a pool, or the only one; fail with the pools if that is not clear."""
    found = {
        pool_key(owner.kind.name, each.metadata.name): (owner, each)
        for owner in _OWNERS
        if await cluster.serves(owner.resource)
        for each in await cluster.list(owner.resource)
        if owner.kind is not CLUSTER_POLICY or _names_driver(each)
    }
    if not found:
        raise Failure(
            ExitCode.NOT_FOUND,
            "no policy installs a driver in containers: there is neither an NVIDIADriver nor a"
            " ClusterPolicy with driver.enabled",
        )
    known = ", ".join(sorted(found))
    if not pool and len(found) == 1:
        return next(iter(found.values()))
    if not pool:
        raise Failure(ExitCode.WRONG_ARGUMENTS, f"name the pool; those with a driver: {known}")
    if pool not in found:
        raise Failure(
            ExitCode.NOT_FOUND, f"no policy of a driver makes the pool {pool!r}; pools: {known}"
        )
    return found[pool]


def _names_driver(policy: DriverPolicy) -> bool:
    """Report whether a ClusterPolicy names a driver that is installed in containers."""
    driver: dict[str, Any] = policy.spec.get("driver") or {}
    return bool(driver.get("enabled", True)) and not driver.get("useNvidiaDriverCRD", False)


def wanted_version(
    policy: DriverPolicy,
    field: Field,
    version: str,
    *,
    kind: str,
    force: bool = False,
    stops: str = "",
) -> Edit:
    """Return the edit that makes a policy want a version; fail if it cannot be one of its, or if
    the field is another's and not taken by force. `stops` is what keeps nodes from it.
    """
    path = field.path
    about, pool = f"{kind} {policy.metadata.name}", pool_key(kind, policy.metadata.name)
    driver: dict[str, Any] = policy.spec
    for part in path[1:-1]:
        driver = driver.get(part) or {}
    old = driver.get(path[-1]) or "none"
    if old == version:
        return Edit(done=f"{about} wants driver {version} already; unchanged{stops}")
    precompiled = bool(driver.get("usePrecompiled", False))
    if problem := misnamed_version(version, old, precompiled=precompiled):
        raise Failure(ExitCode.WRONG_ARGUMENTS, f"{about}: {problem}")
    patch: dict[str, Any] = {path[-1]: version}
    for part in reversed(path[:-1]):
        patch = {part: patch}
    owner = owner_of(policy.metadata, field)
    if owner is not None and not force:
        raise refuse_to_take(owner, about, field, version)
    taken = f" {owner.way_back(field, version)}." if owner else ""
    return Edit(
        done=f"{about} wants driver {version} in place of {old}{stops}. `sluice status`"
        f" shows how far it is.{taken}",
        patch=patch,
        risk=f"the nodes of {about} are drained and upgraded from {old} to {version}, within the"
        f" budget; `sluice plan {pool} --version {version}` tells what it costs{stops}",
    )
