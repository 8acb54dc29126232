"""`sluice plan -f`: a file of policies that are not applied yet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.queries import QueryVerb
from libs.ctl.failures import ExitCode
from tests.component.ctl.operator_fleet import OperatorFleet, make_fleet
from tests.component.ctl.test_queries import Scheduler
from tests.component.ctl.world import (
    NEW_VERSION,
    OLD_VERSION,
    POLICY_FILE,
    POOL,
    World,
    make_world,
)

MORE = """\
    upgradePolicy: {maxUnavailable: 2, drain: {enable: true}}
---
apiVersion: v1
kind: Namespace
metadata: {name: gpu-operator}
"""


class Planned(World):
    """A cluster with a policy and three nodes, and the scheduler's answers."""

    scheduler = Scheduler(POOL)

    async def fill(self) -> None:
        await self.add_policy(OLD_VERSION)
        for name in ("node-1", "node-2", "node-3"):
            await self.add_node(name)
            await self.label(name, "nvidia.com/gpu.present", "true")
        self.scheduler = Scheduler(POOL)
        handlers = {
            QueryVerb.STATUS: self.scheduler.status,
            QueryVerb.PLAN: self.scheduler.plan,
        }
        await self.answer(handlers)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Planned]:
    async with make_world(tmp_path, nats=True, world_of=Planned) as made:
        await made.fill()
        yield made


async def test_a_file_is_planned_as_if_it_were_applied_and_nothing_is_written(
    world: Planned,
) -> None:
    file, before = world.policy_file(NEW_VERSION, MORE), len(world.server.journal)
    ended = await world.run("plan", "-f", file)
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert ended.out.startswith(f"{POOL} to {NEW_VERSION}, with {file}: 1 min (p50)")
    limits = "limits: maxUnavailable 2 (now 1), maxParallelUpgrades 1 (now unlimited)"
    assert limits in " ".join(ended.out.split())
    assert f'the driver changes: spec.driver.version "{NEW_VERSION}" (now ' in ended.out
    assert f"{file}: ClusterPolicy cluster-policy selects 3 nodes" in ended.out
    assert "not in this plan: spec.driver.upgradePolicy.drain.enable true (now false)" in ended.out
    assert "left out of the file: Namespace gpu-operator" in ended.out
    other = await world.run("plan", POOL, "-f", file, "--version", "1.2.3", "-o", "json")
    assert other.json["version"] == other.json["file"]["version"] == "1.2.3"
    assert other.json["file"]["nodes"] == ["node-1", "node-2", "node-3"]
    assert [
        (query.pool, query.driver_version, query.max_unavailable, query.max_parallel)
        for query in world.scheduler.asked
    ] == [(POOL, NEW_VERSION, "2", 1), (POOL, "1.2.3", "2", 1)]
    page = await world.run("plan", "-f", file, "-o", "html")
    assert "ClusterPolicy cluster-policy selects 3 nodes" in page.out
    assert len(world.server.journal) == before


async def test_a_file_that_changes_nothing_is_planned_as_the_cluster_is(world: Planned) -> None:
    ended = await world.run("plan", "-f", "-", stdin=POLICY_FILE % OLD_VERSION)
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert "standard input: ClusterPolicy cluster-policy is in the cluster as it is" in ended.out
    assert "not in this plan" not in ended.out
    (query,) = world.scheduler.asked
    assert query.driver_version == ""


async def test_a_driver_with_other_settings_of_the_same_version_is_asked_for(
    world: Planned,
) -> None:
    file = world.policy_file(OLD_VERSION, "    kernelModuleType: open\n")
    ended = await world.run("plan", "-f", file)
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    changes = "the driver changes: spec.driver.kernelModuleType"
    assert changes in ended.out.replace("\n  ", " ")
    assert "not in this plan" not in ended.out
    (query,) = world.scheduler.asked
    assert query.driver_version == ""
    assert '"kernelModuleType":"open"' in query.driver


async def test_a_file_that_cannot_be_planned_is_one_line(world: Planned) -> None:
    bad = world.policy_file("590.48")
    cases = (
        (bad, ExitCode.WRONG_ARGUMENTS, "spec.driver.version (590.48) is not a string"),
        ("missing.yaml", ExitCode.NOT_FOUND, "missing.yaml cannot be read: No such file"),
        (str(world.folder), ExitCode.NOT_FOUND, "cannot be read: Is a directory"),
    )
    for file, code, problem in cases:
        ended = await world.run("plan", "-f", file)
        assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), file
        assert problem in ended.err
    good = world.policy_file(NEW_VERSION)
    unknown = await world.run("plan", "other", "-f", good)
    assert unknown.code == ExitCode.NOT_FOUND
    assert f"{good}: it makes no pool 'other'; its pools: {POOL}" in unknown.err
    both = await world.run("plan", "--compare", "-f", good)
    assert both.code == ExitCode.WRONG_ARGUMENTS
    assert world.scheduler.asked == []


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[OperatorFleet]:
    async with make_fleet(tmp_path) as made:
        for name in ("node-1", "node-2"):
            await made.add_gpu_node(name, state="upgrade-done")
        await made.finish()
        yield made


async def test_a_file_is_planned_under_the_rules_of_a_gpu_operator(fleet: OperatorFleet) -> None:
    await fleet.add_job("job", "node-1", volumes=[{"name": "data", "emptyDir": {}}])
    before = len(fleet.server.journal)
    file = POLICY_FILE % "590.48.01" + MORE
    ended = await fleet.run("plan", "-f", "-", stdin=file)
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    assert ended.out.startswith("cluster-policy to 590.48.01, with standard input\n")
    assert "limits: maxParallelUpgrades 1, maxUnavailable 2" in ended.out
    assert "standard input: ClusterPolicy cluster-policy selects 2 nodes" in ended.out
    assert "nodes: 2 are upgraded" in ended.out
    assert "node-1: under the operator it is drained" in ended.out
    assert "not in this plan" not in ended.out
    unknown = await fleet.run("plan", "other", "-f", "-", stdin=file)
    assert unknown.code == ExitCode.NOT_FOUND
    assert "it makes no pool 'other'; its pools: cluster-policy" in unknown.err
    assert len(fleet.server.journal) == before
