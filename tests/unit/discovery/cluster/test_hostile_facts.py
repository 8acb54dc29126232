"""Facts of a hostile agent: what cannot be true changes no label and is reported."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import (
    Cpu,
    Facts,
    Gpu,
    LoadedDriver,
    LocalFeatures,
    Mig,
    PciDevice,
    Vgpu,
)
from libs.contracts.message import MalformedMessage, decode
from libs.policy.kinds.mig import MigStrategy
from services.discovery.cluster.decide import LabelPolicy, ReportedFacts
from services.discovery.cluster.decide import decide as decide_labels
from services.discovery.cluster.label_values import FEATURES, MAX_LABELS, check
from tests.unit.discovery.cluster.builders import (
    DEVICE,
    DRIVER,
    GPU,
    SYSTEM,
    labels_after,
    node,
    ours,
)

GOOD = replace(SYSTEM, gpus=(GPU,), machine="DGX H100")
MIXED = LabelPolicy(mig_strategy=MigStrategy.MIXED)
LABELS = labels_after(node(), ReportedFacts(facts=GOOD, driver=DRIVER), MIXED)
NVIDIA = "nvidia.com/"


gpu = partial(replace, GPU)


def divided(*profiles: str, **changed: Any) -> Gpu:
    migs = tuple(
        Mig(uuid=f"MIG-{number}", profile=profile, memory_mib=9984, **changed)
        for number, profile in enumerate(profiles)
    )
    return gpu(mig_mode=True, migs=migs)


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        pytest.param({"gpus": (gpu(name="x" * 4096),)}, ("gpu.product",), id="a long name"),
        pytest.param({"gpus": (gpu(name="\u202e\u0000"),)}, ("gpu.product",), id="no letters"),
        pytest.param({"gpus": (gpu(memory_mib=2**53 - 1),)}, ("gpu.memory",), id="memory"),
        pytest.param(
            {"gpus": (gpu(compute_capability=(2**40, 0)),)},
            ("gpu.family", "gpu.compute.major"),
            id="a capability",
        ),
        pytest.param({"gpus": (gpu(fabric="../x"),)}, ("gpu.clique",), id="a clique"),
        pytest.param({"gpus": (GPU,) * 64}, ("gpu.count",), id="64 GPUs"),
        pytest.param({"gpus": (divided(*["1g.10gb"] * 17),)}, ("gpu.count",), id="17 MIG devices"),
        pytest.param({"machine": "x" * 4096}, ("gpu.machine",), id="a long machine"),
        pytest.param(
            {"vgpu": Vgpu(present=True, host_driver_version="\u0000")},
            ("vgpu.host-driver-version",),
            id="a host's driver",
        ),
    ],
)
def test_a_value_that_cannot_be_true_leaves_its_label_as_it_is(
    changed: dict[str, Any], refused: tuple[str, ...]
) -> None:
    facts = replace(GOOD, **changed)
    reported = ReportedFacts(facts=facts, driver=DRIVER)
    decision = decide_labels(ours(LABELS), reported, MIXED)
    assert decision.refused.keys == tuple(f"{NVIDIA}{key}" for key in refused)
    after = labels_after(ours(LABELS), reported, MIXED)
    assert {key: after[key] for key in LABELS} == LABELS
    assert after.keys() - LABELS.keys() <= {f"{NVIDIA}vgpu.present"}
    assert str(decision.refused) == (
        f"no values of labels: {', '.join(decision.refused.keys)}" if refused else ""
    )


@pytest.mark.parametrize("version", ["580", "580.95.05-beta/x", "1" * 60 + ".1", "580.95\n"])
def test_a_malformed_driver_version_leaves_its_labels(version: str) -> None:
    reported = ReportedFacts(facts=GOOD, driver=LoadedDriver(version=version, cuda="13.0"))
    decision = decide_labels(ours(LABELS), reported, MIXED)
    assert decision.change is None
    assert decision.refused.keys == (f"{NVIDIA}cuda.driver-version.full",)


@pytest.mark.parametrize("profile", ["1g.10gb/x", "x" * 300, "1g.10gb\n", "../1g.10gb", "1G.10GB"])
@pytest.mark.parametrize("strategy", [MigStrategy.SINGLE, MigStrategy.MIXED])
def test_a_malformed_profile_is_no_part_of_a_key(profile: str, strategy: MigStrategy) -> None:
    reported = ReportedFacts(facts=replace(GOOD, gpus=(divided(profile),)))
    policy = LabelPolicy(mig_strategy=strategy)
    decision = decide_labels(node(), reported, policy)
    assert decision.refused.keys == (f"{NVIDIA}mig-other.product",)
    labels = labels_after(node(), reported, policy)
    assert [key for key in labels if key.startswith(f"{NVIDIA}mig-")] == []


def test_the_attributes_of_a_mig_device_are_bounded() -> None:
    device = divided("1g.10gb", multiprocessors=10_000, decoders=2**53 - 1)
    reported = ReportedFacts(facts=replace(GOOD, gpus=(device,)))
    decision = decide_labels(node(), reported, MIXED)
    resource = f"{NVIDIA}mig-1g.10gb"
    refused = (f"{resource}.multiprocessors", f"{resource}.engines.decoder")
    assert decision.refused.keys == refused


@pytest.mark.parametrize("uuid", ["GPU-2", "", "x" * 4096, "\u0000"])
def test_a_uuid_that_changes_is_in_no_label(uuid: str) -> None:
    facts = replace(GOOD, gpus=(gpu(uuid=uuid),))
    decision = decide_labels(ours(LABELS), ReportedFacts(facts=facts, driver=DRIVER), MIXED)
    assert (decision.change, decision.refused.count) == (None, 0)


@pytest.mark.parametrize(
    "text",
    [
        b'{"gpus":[{"uuid":"GPU-1","index":0,"minor":0,"pci":"","name":"\xff","memory_mib":1}]}',
        b'{"gpus":[{"uuid":"GPU-1","index":0,"minor":0,"pci":"","name":"","memory_mib":-1}]}',
        b'{"memory":{"bytes":9223372036854775808}}',
        b'{"gpus":[{"uuid":"GPU-1","index":0,"minor":0,"pci":"","name":"","memory_mib":NaN}]}',
    ],
    ids=["not UTF-8", "negative", "2^63", "not a number"],
)
def test_values_that_no_message_may_have_are_no_facts(text: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(Facts, text)


def test_the_labels_of_a_node_are_bounded() -> None:
    profiles = [f"{part}g.{memory}gb" for part in range(1, 9) for memory in range(1, 60)]
    vendors = (f"{number:04x}" for number in range(5000))
    nics = tuple(
        PciDevice(address=each, vendor=each, device="1", device_class="0200", sriov_total_vfs=8)
        for each in vendors
    )
    flags = tuple(f"flag{number}" for number in range(5000))
    labels = {f"{FEATURES}a{number}": "x" for number in range(5000)}
    gpus = tuple(divided(*profiles[start : start + 16]) for start in range(0, 32 * 16, 16))
    facts = replace(
        GOOD,
        gpus=gpus,
        pci=(DEVICE, *nics),
        cpu=Cpu(architecture="x86_64", vendor="AuthenticAMD", family=2**50, flags=flags),
        features=LocalFeatures(labels=labels, refused=2**53 - 1, why="\u0000" * 10_000),
    )
    reported = ReportedFacts(facts=facts, driver=DRIVER)
    found = labels_after(node(), reported, MIXED)
    assert len(found) <= MAX_LABELS + 1
    refused = decide_labels(node(), reported, MIXED).refused
    assert {
        f"{NVIDIA}mig-other.product",
        f"{FEATURES}pci-other.present",
        f"{FEATURES}cpu-model.family",
    } <= set(refused.keys)
    assert len(refused.keys) == 3 + 5000 - 64
    assert refused.lines == 1 << 20
    assert len(str(refused)) < 1000


def test_a_bound_of_all_labels_leaves_out_the_last() -> None:
    many = {f"{FEATURES}a{number}": "x" for number in range(MAX_LABELS + 2)}
    checked = check(many | {f"{FEATURES}gone": None})
    assert list(checked.labels) == [*list(many)[:MAX_LABELS], f"{FEATURES}gone"]
    assert checked.refused == tuple(many)[MAX_LABELS:]
