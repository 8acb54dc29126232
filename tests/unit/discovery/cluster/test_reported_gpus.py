"""What a node's agents report about GPUs is cleaned, or refused as a whole, and counted."""

import math
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.contracts.facts import Facts, Gpu
from libs.contracts.health import HealthFinding, HealthRule, HealthState
from libs.testing.simulation import Sim
from services.discovery.cluster.device_decide import ApplyDevice
from services.discovery.cluster.pace import BURST, PERIOD, Pace
from services.discovery.cluster.reported_gpus import MAX_GPUS, label_value, read_gpus
from tests.support import in_virtual_time
from tests.unit.discovery.cluster.builders import DEVICE
from tests.unit.discovery.cluster.gpu_builders import (
    MIG,
    NOW,
    XID,
    Site,
    facts,
    gpu,
    health,
    judged,
    node,
)

HOSTILE: dict[str, tuple[Any, ...]] = {
    "uuid": ("x" * 4096, "GPU-\n", "GPU-" + "a" * 200, "MIG-1"),
    "name": ("n" * 4096, "\x00\x1b[2J", "\N{SNOWMAN}" * 500, "-._"),
    "pci": ("../../etc", "p" * 4096),
    "serial": ("s" * 4096, "a b"),
    "memory_mib": (2**53 - 1,),
    "compute_capability": ((2**53 - 1, 0),),
    "migs": ((MIG,) * 1000, (replace(MIG, uuid="m" * 4096, profile="\n"),)),
    "nvlinks": (2**53 - 1,),
    "nvlinks_down": (tuple(range(5000)),),
    "fabric": ("f" * 4096,),
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, vs in HOSTILE.items() for v in vs])
def test_a_hostile_value_leaves_a_bounded_valid_device(field: str, value: Any) -> None:
    story = Site(node())
    decision = story.settle(
        facts(gpu(0, **{field: value})),
        health(judged(0)),
        absent=10.0,
    )
    (write,) = decision.writes
    assert isinstance(write, ApplyDevice)
    encoded = msgspec.json.encode(write.wanted.manifest())
    assert len(encoded) < 2048
    assert encoded.decode().isprintable()
    assert all(
        0 < len(label) <= 63 and label[0].isalnum() and label[-1].isalnum()
        for label in write.wanted.labels.values()
    )


@pytest.mark.parametrize(
    ("gpus", "indexes"),
    [
        ((gpu(0), gpu(0, uuid="GPU-x"), gpu(1)), [0, 1]),
        ((gpu(0), gpu(1, index=2**53 - 1)), [0]),
        (tuple(gpu(0, index=index, uuid=f"GPU-{index}") for index in range(MAX_GPUS + 1)), None),
    ],
)
def test_gpus_that_cannot_be_are_refused(gpus: tuple[Gpu, ...], indexes: list[int] | None) -> None:
    found = read_gpus(facts(*gpus), None, None, now=NOW)
    assert (None if found.gpus is None else [each.index for each in found.gpus]) == indexes
    assert found.refused > 0


def test_two_gpus_with_one_uuid_have_none() -> None:
    found = read_gpus(facts(gpu(0), gpu(1, uuid=gpu(0).uuid)), None, None, now=NOW)
    assert found.gpus is not None
    assert [each.status.uuid for each in found.gpus] == ["", ""]
    assert found.refused == 2


def test_honest_reports_are_not_refused() -> None:
    found = read_gpus(
        facts(gpu(0, migs=(MIG,)), gpu(1, uuid="")), "580.95.05", health(judged(0)), now=NOW
    )
    assert found.refused == 0


@pytest.mark.parametrize(
    "since", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300, NOW + 1, NOW - 1e9]
)
def test_a_time_that_cannot_be_is_that_of_the_verdict(since: float) -> None:
    finding = replace(XID, since=since)
    story = Site(node())
    story.settle(facts(gpu(0)), health(judged(0, finding)))
    assert story.stored["gpu-0-node-a"]["status"]["health"]["since"] == "2027-01-15T08:00:00Z"


def test_texts_of_findings_are_cut_to_one_line() -> None:
    finding = HealthFinding(
        rule=HealthRule("new-rule"),
        state=HealthState.FAILED,
        message="a\nb\x1b" + "c" * 100_000,
        remedy="\N{RIGHT-TO-LEFT OVERRIDE}" * 999,
        xid=2**53 - 1,
    )
    story = Site(node())
    story.settle(facts(gpu(0)), health(judged(0, finding)))
    shown = story.stored["gpu-0-node-a"]["status"]["health"]
    assert (shown["reason"], len(shown["message"])) == ("OtherRule", 256)
    assert shown["message"].isprintable()
    assert "remedy" not in shown


def test_verdicts_of_too_many_gpus_or_twice_on_one_are_no_verdict() -> None:
    many = health(*(judged(0, uuid=f"GPU-{index}", index=index) for index in range(MAX_GPUS + 1)))
    for reported in (many, health(judged(0), judged(0, XID))):
        found = read_gpus(None, None, reported, now=NOW)
        assert found.verdicts is None
        assert found.refused > 0


def test_a_state_of_a_newer_agent_is_unknown() -> None:
    story = Site(node())
    story.settle(facts(gpu(0)), health(judged(0, state=HealthState("on-fire"))))
    assert story.node.gpu_health is not None
    assert story.node.gpu_health.status == "Unknown"


def test_a_verdict_about_another_gpu_of_that_index_does_not_count() -> None:
    story = Site(node())
    decision = story.decide(facts(gpu(0)), health(judged(0, XID, uuid="GPU-other")), absent=4.0)
    assert decision.is_empty


def test_a_machine_without_nvidia_devices_has_no_gpus() -> None:
    assert read_gpus(Facts(pci=()), None, None, now=NOW).gpus == ()
    assert read_gpus(Facts(pci=(DEVICE,)), None, None, now=NOW).gpus is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("Tesla T4", "Tesla-T4"),
        ("", ""),
        ("_(!)_", ""),
        ("n" * 62 + " n", "n" * 62),
    ],
)
def test_products_become_values_of_labels(name: str, value: str) -> None:
    assert label_value(name) == value


@in_virtual_time
async def test_a_node_is_written_in_a_burst_and_then_slowly(sim: Sim) -> None:
    pace = Pace(clock=sim.clock)
    assert [pace.take("a") for _ in range(BURST)] == [0.0] * BURST
    assert (pace.take("a"), pace.take("b")) == (PERIOD, 0.0)
    await sim.clock.sleep(PERIOD)
    assert pace.take("a") == 0.0
    assert pace.take("a") == PERIOD
    await sim.clock.sleep(PERIOD * BURST)
    assert [pace.take("a") for _ in range(BURST)] == [0.0] * BURST
