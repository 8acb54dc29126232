"""`sluice mig`: shown from Kubernetes, and the label written with the user's rights."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.node import MIG_CONFIG_LABEL
from libs.ctl.failures import ExitCode
from libs.kube.resources import NODES
from tests.component.ctl.world import World, make_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path) as made:
        yield made


async def test_a_division_is_asked_for_shown_and_given_up(world: World) -> None:
    await world.add_node("node-7")
    present = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
    revision = (await world.kube.get(NODES, "node-7")).metadata.resource_version
    await world.kube.merge(NODES, "node-7", present, resource_version=revision)
    unasked = await world.run("mig", "set", "all-1g.10gb", "node-7")
    assert unasked.code == ExitCode.REFUSED
    assert "pods with GPUs on node-7 are evicted" in unasked.err
    asked = await world.run("mig", "set", "all-1g.10gb", "node-7", "--yes")
    assert (asked.code, asked.err) == (ExitCode.DONE, "")
    assert (await world.labels("node-7"))[MIG_CONFIG_LABEL] == "all-1g.10gb"
    (shown,) = (await world.run("mig", "show", "-o", "json")).json
    assert (shown["node"], shown["asked"], shown["there"]) == ("node-7", "all-1g.10gb", {})
    for name in ("", "a b", "<b>", "a\n", "é", "x" * 64):
        wrong = await world.run("mig", "set", name, "node-7", "--yes")
        assert (wrong.code, wrong.err.count("\n")) == (ExitCode.WRONG_ARGUMENTS, 1), name
    assert (await world.labels("node-7"))[MIG_CONFIG_LABEL] == "all-1g.10gb"
    assert (await world.run("mig", "clear", "node-7")).code == ExitCode.DONE
    assert MIG_CONFIG_LABEL not in await world.labels("node-7")


async def test_a_node_that_is_not_there_or_has_no_gpus_is_named(world: World) -> None:
    await world.add_node("node-8")
    without = await world.run("mig", "show", "node-8")
    assert (without.code, "has no GPUs" in without.err) == (ExitCode.NOT_FOUND, True)
    unknown = await world.run("mig", "set", "all-disabled", "node-9", "--yes")
    assert unknown.code == ExitCode.NOT_FOUND


async def test_a_label_that_a_pipeline_applies_is_not_taken_from_it(world: World) -> None:
    await world.add_node("node-7")
    labelled = {"name": "node-7", "labels": {MIG_CONFIG_LABEL: "all-disabled"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": labelled}
    await world.apply(node, manager="Terraform")
    for verb in (("set", "all-1g.10gb"), ("clear",)):
        refused = await world.run(
            "mig", *verb, "node-7", *(() if verb == ("clear",) else ("--yes",))
        )
        assert refused.code == ExitCode.REFUSED
        assert f"metadata.labels.{MIG_CONFIG_LABEL} is managed by Terraform" in refused.err
    assert (await world.labels("node-7"))[MIG_CONFIG_LABEL] == "all-disabled"
    forced = await world.run("mig", "set", "all-1g.10gb", "node-7", "--yes", "--force")
    assert "The field was taken from Terraform, which meets a conflict" in forced.out
    assert (await world.labels("node-7"))[MIG_CONFIG_LABEL] == "all-1g.10gb"
