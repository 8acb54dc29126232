"""Labels derived from facts: names, values, missing facts and foreign managers."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import (
    Facts,
    Gpu,
    Kernel,
    LoadedDriver,
    LocalFeatures,
    OperatingSystem,
    Vgpu,
)
from libs.contracts.gpus import GpuProblem
from services.discovery.cluster.decide import ApplyLabels, LabelPolicy, ReportedFacts, decide
from services.discovery.cluster.gfd import GPU_LABELS, TIMESTAMP, gpu_labels
from services.discovery.cluster.label_values import check, product
from services.discovery.cluster.nfd import system_labels
from tests.unit.discovery.cluster.builders import (
    DRIVER,
    FEATURES,
    GPU,
    LABEL_POLICY,
    NFD,
    NO_GPUS,
    PRESENT,
    SYSTEM,
    labels_after,
    node,
    ours,
)

FACTS = replace(SYSTEM, gpus=(GPU,), machine="DGX H100 (Rev. B)")
REPORTED = ReportedFacts(facts=FACTS, driver=DRIVER)
KERNEL = f"{FEATURES}kernel-version."
OS = f"{FEATURES}system-os_release."
NO_DEPLOYS = LabelPolicy()


def labels_of(reported: ReportedFacts) -> dict[str, str]:
    """Return all labels of a node without labels of other managers."""
    return labels_after(node(), reported, NO_DEPLOYS)


def test_complete_facts_give_exactly_these_labels() -> None:
    assert labels_of(REPORTED) == {
        PRESENT: "true",
        f"{FEATURES}pci-10de.present": "true",
        f"{KERNEL}full": "5.15.0-139-generic",
        f"{KERNEL}major": "5",
        f"{KERNEL}minor": "15",
        f"{KERNEL}revision": "0",
        f"{OS}ID": "ubuntu",
        f"{OS}VERSION_ID": "22.04",
        f"{OS}VERSION_ID.major": "22",
        f"{OS}VERSION_ID.minor": "04",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.machine": "DGX-H100-Rev.-B",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/cuda.driver.major": "580",
        "nvidia.com/cuda.driver.minor": "95",
        "nvidia.com/cuda.driver.rev": "05",
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/cuda.driver-version.minor": "95",
        "nvidia.com/cuda.driver-version.revision": "05",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/cuda.runtime.major": "13",
        "nvidia.com/cuda.runtime.minor": "0",
        "nvidia.com/cuda.runtime-version.major": "13",
        "nvidia.com/cuda.runtime-version.minor": "0",
        "nvidia.com/cuda.runtime-version.full": "13.0",
    }


@pytest.mark.parametrize(
    ("release", "full", "numbers"),
    [
        ("6.2.3", "6.2.3", ("6", "2", "3")),
        ("6.0.0-beta", "6.0.0-beta", ("6", "0", "0")),
        ("6.8", "6.8", ("6", "8", "")),
        ("6.0.10-100+123.x86_64~", "6.0.10-100_123.x86_64", ("6", "0", "10")),
    ],
)
def test_the_labels_of_a_kernel_release(release: str, full: str, numbers: tuple[str, ...]) -> None:
    found = system_labels(Facts(kernel=Kernel(release=release)))
    names = ("full", "major", "minor", "revision")
    assert tuple(found[f"{KERNEL}{name}"] for name in names) == (full, *numbers)


def test_invalid_values_change_no_label() -> None:
    invalid = check(system_labels(Facts(os=OperatingSystem(id="x" * 64, version_id="a b"))))
    assert not invalid.labels.keys() & {f"{OS}ID", f"{OS}VERSION_ID"}
    assert invalid.refused == (f"{OS}ID", f"{OS}VERSION_ID")
    hostile = replace(GPU, name="x" * 4096, memory_mib=2**53 - 1)
    found = check(gpu_labels(Facts(gpus=(hostile,)), None))
    keys = ("nvidia.com/gpu.memory", "nvidia.com/gpu.product")
    assert not found.labels.keys() & set(keys)
    assert tuple(sorted(found.refused)) == keys


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("a space separated string", "a-space-separated-string"),
        ("some(thing)else", "somethingelse"),
        ("some ( thing )else", "some-thing-else"),
        ("NVIDIA-TITAN-X-(Pascal)", "NVIDIA-TITAN-X-Pascal"),
        (" input  with multiple   spaces   ", "input-with-multiple-spaces"),
        ("some [ / thing / ]else", "some-thing-else"),
        ("some / thing /else", "some-thing-else"),
        ("some-thing.else_new", "some-thing.else_new"),
    ],
)
def test_a_product_name_becomes_a_valid_label(name: str, label: str) -> None:
    assert product(name) == label


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((6, 1), "pascal"),
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
        ((12, 0), "blackwell"),
        ((4, 0), "undefined"),
        ((0, 0), None),
    ],
)
def test_the_family_follows_from_the_compute_capability(
    capability: tuple[int, int], family: str | None
) -> None:
    gpu = replace(GPU, compute_capability=capability)
    assert gpu_labels(Facts(gpus=(gpu,)), None)["nvidia.com/gpu.family"] == family


def test_the_most_frequent_model_is_labelled() -> None:
    other = replace(GPU, name="Tesla T4", memory_mib=15360)
    found = gpu_labels(Facts(gpus=(other, GPU, other)), None)
    assert found["nvidia.com/gpu.product"] == "Tesla-T4"
    assert found["nvidia.com/gpu.count"] == "2"
    even = gpu_labels(Facts(gpus=(other, GPU)), None)
    assert even["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"


def test_a_gpu_that_was_never_described_counts_where_all_others_are_of_one_model() -> None:
    failed = Gpu(uuid="", index=7, minor=-1, pci="", name="", memory_mib=0)
    failed = replace(failed, problem=GpuProblem.FAILED)
    assert gpu_labels(Facts(gpus=(GPU, GPU, failed)), None)["nvidia.com/gpu.count"] == "3"
    other = replace(GPU, name="Tesla T4")
    assert gpu_labels(Facts(gpus=(GPU, GPU, other, failed)), None)["nvidia.com/gpu.count"] == "2"
    assert gpu_labels(Facts(gpus=(failed,)), None) == {}


def test_a_display_does_not_count_as_a_gpu() -> None:
    display = replace(GPU, name="NVIDIA DGX Display")
    assert gpu_labels(Facts(gpus=(display,)), None) == {}
    assert gpu_labels(Facts(gpus=(display, GPU)), None)["nvidia.com/gpu.count"] == "1"


@pytest.mark.parametrize("version", ["580.95.05", "580.95"])
def test_a_driver_has_two_or_three_numbers(version: str) -> None:
    found = gpu_labels(Facts(), LoadedDriver(version=version))
    revision = version.split(".")[2:3] or [""]
    assert found["nvidia.com/cuda.driver-version.revision"] == revision[0]
    other = check(gpu_labels(Facts(), LoadedDriver(version="580")))
    assert (other.labels, other.refused) == ({}, ("nvidia.com/cuda.driver-version.full",))


# Missing facts.

LABELS = labels_of(REPORTED)


@pytest.mark.parametrize(
    "reported",
    [
        ReportedFacts(),
        ReportedFacts(facts=Facts()),
        ReportedFacts(facts=Facts(pci=FACTS.pci)),
        ReportedFacts(facts=Facts(gpus=()), driver=LoadedDriver(version="")),
        ReportedFacts(facts=Facts(pci=()), without_gpus=10.0),
    ],
    ids=["no report", "empty", "PCI alone", "no driver", "an absence that is not confirmed"],
)
def test_a_missing_fact_removes_no_label(reported: ReportedFacts) -> None:
    assert decide(ours(LABELS), reported, NO_DEPLOYS).change is None


def test_a_changed_fact_changes_only_its_labels() -> None:
    newer = ReportedFacts(facts=Facts(), driver=LoadedDriver(version="590.1", cuda="13.1"))
    changed = {key for key, value in labels_after(ours(LABELS), newer, NO_DEPLOYS).items()
             if LABELS.get(key) != value}  # fmt: skip
    assert changed == {
        "nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor",
        "nvidia.com/cuda.driver.rev",
        "nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver-version.minor",
        "nvidia.com/cuda.driver-version.revision", "nvidia.com/cuda.driver-version.full",
        "nvidia.com/cuda.runtime.minor", "nvidia.com/cuda.runtime-version.minor",
        "nvidia.com/cuda.runtime-version.full",
    }  # fmt: skip


def test_labels_of_gpus_that_are_confirmed_absent_are_removed() -> None:
    found = labels_after(ours(LABELS), NO_GPUS, NO_DEPLOYS)
    assert not found.keys() & {*GPU_LABELS, f"{FEATURES}pci-10de.present"}
    assert found[PRESENT] == "false"
    assert found[f"{KERNEL}full"] == "5.15.0-139-generic"


def test_gpu_labels_can_be_disabled() -> None:
    without = LabelPolicy(gpu_labels=False)
    found = labels_after(ours(LABELS), REPORTED, without)
    assert not found.keys() & set(GPU_LABELS)
    assert found[f"{FEATURES}pci-10de.present"] == "true"


# Another feature discovery.


def test_labels_of_another_manager_are_not_touched() -> None:
    key = f"{KERNEL}full"
    before = node({key: "4.18.0"}, owners={key: NFD})
    decision = decide(before, REPORTED, NO_DEPLOYS)
    assert isinstance(decision.change, ApplyLabels)
    assert key not in decision.change.labels
    assert decision.foreign == 1
    assert labels_after(before, REPORTED, NO_DEPLOYS)[key] == "4.18.0"


def test_labels_claimed_by_another_feature_discovery_are_left_to_it() -> None:
    claims = "kernel-version.full,nvidia.com/gpu.product"
    before = node(claims=claims)
    found = labels_after(before, REPORTED, NO_DEPLOYS)
    assert "nvidia.com/gpu.product" not in found
    assert found["nvidia.com/gpu.count"] == "1"
    assert [key for key in found if key.startswith(FEATURES)] == []


def test_a_label_taken_over_by_another_manager_stays_with_it() -> None:
    key = f"{KERNEL}full"
    taken = node(LABELS | {key: "6.9.9"}, ours=tuple(LABELS.keys() - {key}), owners={key: NFD})
    assert decide(taken, REPORTED, NO_DEPLOYS).change is None


def test_a_label_shared_with_another_manager_stays() -> None:
    newer = ReportedFacts(facts=Facts(kernel=Kernel(release="6.9.9")))
    keys = [f"{KERNEL}{name}" for name in ("full", "major", "minor", "revision")]
    shared = ours(LABELS, owners=dict.fromkeys(keys, NFD))
    assert decide(shared, newer, NO_DEPLOYS).change is None
    claimed = ours(LABELS, claims=",".join(key.removeprefix(FEATURES) for key in keys))
    decision = decide(claimed, newer, NO_DEPLOYS)
    assert (decision.change, decision.foreign) == (None, 4)
    # An apply for another reason still contains the claimed labels.
    other = decide(claimed, ReportedFacts(driver=LoadedDriver(version="1.2")), LABEL_POLICY).change
    assert isinstance(other, ApplyLabels)
    assert {key: other.labels[key] for key in keys} == {key: LABELS[key] for key in keys}


# Where NFD runs, by the setting.

ELSEWHERE = LabelPolicy(nfd_labels=False)


def features_of(labels: dict[str, str]) -> list[str]:
    return sorted(key for key in labels if key.startswith(FEATURES))


def test_no_label_of_nfd_is_written_where_it_runs() -> None:
    found = labels_after(node(), REPORTED, ELSEWHERE)
    assert features_of(found) == []
    assert (found[PRESENT], found["nvidia.com/gpu.count"]) == ("true", "1")
    assert decide(ours(found), REPORTED, ELSEWHERE).foreign == 0


def test_vendors_labels_are_ours_only_where_nobody_else_writes_them() -> None:
    key = "a.example/rack"
    facts = replace(FACTS, features=LocalFeatures(labels={key: "b"}))
    reported = ReportedFacts(facts=facts)
    assert labels_after(node(), reported, NO_DEPLOYS)[key] == "b"
    theirs = node({key: "x"}, owners={key: "kubelet"})
    assert labels_after(theirs, reported, NO_DEPLOYS)[key] == "x"
    assert key not in labels_after(node(), reported, ELSEWHERE)
    gone = ReportedFacts(facts=replace(facts, features=LocalFeatures()))
    assert key not in labels_after(ours(LABELS | {key: "b"}), gone, NO_DEPLOYS)


def test_the_labels_that_nfd_writes_are_used() -> None:
    labels = {f"{FEATURES}pci-0302_10de.present": "true"}
    before = node(labels, owners=dict.fromkeys(labels, NFD))
    found = labels_after(before, ReportedFacts(), ELSEWHERE)
    assert found == {**labels, PRESENT: "true"}


def test_our_labels_stay_until_nfd_describes_the_node_without_them() -> None:
    newer = replace(FACTS, kernel=Kernel(release="6.9.9"))
    before = ours(LABELS)
    assert decide(before, ReportedFacts(facts=newer, driver=DRIVER), ELSEWHERE).change is None
    claims = ours(LABELS, claims="kernel-version.full,pci-10de.present")
    found = labels_after(claims, REPORTED, ELSEWHERE)
    assert features_of(found) == [f"{KERNEL}full", f"{FEATURES}pci-10de.present"]
    assert found[PRESENT] == "true"


def test_values_of_nfd_are_not_refused_where_it_runs() -> None:
    features = LocalFeatures(refused=3, why="a reason")
    facts = Facts(os=OperatingSystem(id="x" * 64), features=features)
    refused = decide(node(), ReportedFacts(facts=facts), NO_DEPLOYS).refused
    assert (refused.keys, refused.lines, refused.why) == ((f"{OS}ID",), 3, "a reason")
    assert refused.count == 4
    assert decide(node(), ReportedFacts(facts=facts), ELSEWHERE).refused.count == 0


# The time of GFD's labels.


def test_the_time_joins_an_apply_and_never_causes_one() -> None:
    def at(reported: ReportedFacts, now: float) -> ReportedFacts:
        return replace(reported, at=now)

    first = labels_after(node(), at(REPORTED, 1_800_000_000.5), NO_DEPLOYS)
    assert first == {**LABELS, TIMESTAMP: "1800000000"}
    assert decide(ours(first), at(REPORTED, 1_800_000_060.0), NO_DEPLOYS).change is None
    older = ours(LABELS)
    assert decide(older, at(REPORTED, 1_800_000_060.0), NO_DEPLOYS).change is None
    kernel = replace(FACTS, kernel=Kernel(release="6.9.9"))
    other = ReportedFacts(facts=kernel, driver=DRIVER)
    assert labels_after(ours(first), at(other, 1_800_000_060.0))[TIMESTAMP] == "1800000000"
    newer = ReportedFacts(facts=FACTS, driver=LoadedDriver(version="590.1"))
    found = labels_after(ours(first), at(newer, 1_800_000_060.0), NO_DEPLOYS)
    assert found[TIMESTAMP] == "1800000060"
    gone = labels_after(ours(first), at(NO_GPUS, 1_800_000_060.0), NO_DEPLOYS)
    assert TIMESTAMP not in gone
    foreign = node({TIMESTAMP: "1"}, owners={TIMESTAMP: NFD})
    assert labels_after(foreign, at(REPORTED, 1_800_000_060.0), NO_DEPLOYS)[TIMESTAMP] == "1"


# Virtual GPUs.


def test_a_guest_names_the_driver_of_its_host() -> None:
    guest = Vgpu(present=True, host_driver_version="460.16", host_driver_branch="r460_00")
    reported = ReportedFacts(facts=replace(FACTS, vgpu=guest), driver=DRIVER)
    found = labels_after(node(), reported)
    assert {key: value for key, value in found.items() if "vgpu" in key} == {
        "nvidia.com/vgpu.present": "true",
        "nvidia.com/vgpu.host-driver-version": "460.16",
        "nvidia.com/vgpu.host-driver-branch": "r460_00",
    }
    assert "nvidia.com/gpu.deploy.mig-manager" not in found
    machine = ReportedFacts(facts=replace(FACTS, vgpu=Vgpu()), driver=DRIVER)
    found = labels_after(ours(found), machine)
    assert {key: value for key, value in found.items() if "vgpu" in key} == {
        "nvidia.com/vgpu.present": "false"
    }
    assert found["nvidia.com/gpu.deploy.mig-manager"] == "true"
