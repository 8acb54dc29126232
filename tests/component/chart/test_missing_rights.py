"""Each service with one right removed says which one it lacks, in its readiness or in its log.

The API server is simulated: it has no RBAC, so that a fault stands in for the missing right.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from libs.contracts.identities import Writer
from libs.policy.installation import RBAC_RULES
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.simulation import Sim
from tests.component import world
from tests.component.processes import user_of
from tests.component.scheduler.world import FAST
from tests.component.scheduler.world import World as FleetWorld

LEADERS: Final = (Writer.DISCOVERY_CLUSTER, Writer.DRIVER_CLUSTER, Writer.SCHEDULER)
ROLES: Final = (*LEADERS, Writer.VALIDATOR_CLUSTER, Writer.TELEMETRY_CLUSTER)
KINDS: Final = {
    "clusterpolicies": "ClusterPolicy",
    "configmaps": "ConfigMap",
    "daemonsets": "DaemonSet",
    "deviceclasses": "DeviceClass",
    "devices": "Device",
    "gpuclusterpolicies": "GPUClusterPolicy",
    "leases": "Lease",
    "nodes": "Node",
    "nvidiadrivers": "NVIDIADriver",
    "events": "Event",
    "pods": "Pod",
    "resourceclaims": "ResourceClaim",
    "rollouts": "Rollout",
    "rolloutstrategies": "RolloutStrategy",
    "runtimeclasses": "RuntimeClass",
    "services": "Service",
}
NOT_SERVED: Final = {"gpuclusters", "servicemonitors"}
"""Kinds of which this API server has no definition."""
NOT_YET: Final = {
    # Only while a policy offers GPUs by claims.
    (Writer.DRIVER_CLUSTER, "resourceclaims"),
    # Only while an eviction is refused.
    (Writer.SCHEDULER, "poddisruptionbudgets"),
}
"""What a service does not read here."""
READS: Final = ("get", "list", "watch")
WRITES: Final = ("create", "update", "patch", "apply", "delete")
WRITTEN: Final = (
    (Writer.DISCOVERY_CLUSTER, "nodes"),
    (Writer.DISCOVERY_CLUSTER, "devices"),
    (Writer.DISCOVERY_CLUSTER, "leases"),
    (Writer.DRIVER_CLUSTER, "daemonsets"),
    (Writer.DRIVER_CLUSTER, "configmaps"),
    (Writer.DRIVER_CLUSTER, "services"),
    (Writer.DRIVER_CLUSTER, "leases"),
    (Writer.SCHEDULER, "nodes"),
    (Writer.SCHEDULER, "rollouts"),
    (Writer.SCHEDULER, "events"),
    (Writer.SCHEDULER, "leases"),
)
REMEDY: Final = "grant it in RBAC"


def rights_to_read() -> Iterator[tuple[Writer, str]]:
    for writer in ROLES:
        found = {
            resource
            for rule in RBAC_RULES[writer]
            if set(READS) & set(rule.verbs)
            for resource in rule.resources
            if "/" not in resource and resource not in NOT_SERVED
        }
        yield from sorted((writer, each) for each in found if (writer, each) not in NOT_YET)


class World(FleetWorld):
    def __init__(self, sim: Sim, folder: Path) -> None:
        super().__init__(sim, folder, FAST)
        self.said: list[str] = []

    async def run_without(self, writer: Writer, resource: str, verbs: tuple[str, ...]) -> None:
        """Run a service that lacks a right until it has needed it, and keep what it says."""
        fault = Fault(
            effect=RefuseRequest(403), kind=KINDS[resource], verbs=verbs, user=user_of(writer)
        )
        active = self.server.faults.add(fault)

        async def is_refused() -> bool:
            return active.hit_count > 0

        with capture_logs() as logs:
            role = self.start(writer)
            await self.until(is_refused, within=120.0)
            await self.sleep(10)
            self.said = [*role.service.unready_reasons(), *(str(each) for each in logs)]


def lacking(world: World, caplog: pytest.LogCaptureFixture, resource: str) -> list[str]:
    """Return the lines that name what is lacking, and what to do."""
    lines = [*world.said, *caplog.messages]
    return [each for each in lines if f"/{resource}" in each and REMEDY in each]


@pytest.mark.parametrize(("writer", "resource"), [*rights_to_read()])
def test_a_service_that_may_not_read_says_so(
    writer: Writer, resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        await world.install()
        await world.apply_policy("570.86.15")
        await world.run_without(writer, resource, READS)
        assert lacking(world, caplog, resource)

    world.run_world(story, World)


@pytest.mark.parametrize(("writer", "resource"), WRITTEN)
def test_a_service_that_may_not_write_says_so(
    writer: Writer, resource: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        await world.install_fleet("a")
        for other in LEADERS:
            if other is not writer:
                world.start(other)
        await world.run_without(writer, resource, WRITES)
        assert lacking(world, caplog, resource)

    world.run_world(story, World)


def test_no_service_has_a_wildcard() -> None:
    for rules in RBAC_RULES.values():
        for rule in rules:
            assert "*" not in (rule.group, *rule.resources, *rule.verbs, *rule.urls, *rule.names)
