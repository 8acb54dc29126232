"""Labels of MIG devices by strategy, of shared GPUs, and of what all GPUs decide together."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Facts, Gpu, Mig
from libs.policy.kinds.mig import MigStrategy
from services.discovery.cluster.decide import LabelPolicy, ReportedFacts
from services.discovery.cluster.gfd import gpu_labels
from services.discovery.cluster.sharing import SharedResource, Sharing, SharingStrategy
from tests.unit.discovery.cluster.builders import DEVICE, GPU, labels_after, node, ours

MODEL = "NVIDIA-H100-80GB-HBM3"
SMALL = Mig(uuid="MIG-1", profile="1g.10gb", memory_mib=9984, multiprocessors=16, gpu_slices=1)
MEDIA = replace(SMALL, uuid="MIG-2", profile="1g.10gb+me", jpeg_engines=1)


def divided(*migs: Mig) -> Gpu:
    return replace(GPU, mig_mode=True, migs=migs)


def described(
    *gpus: Gpu, strategy: MigStrategy = MigStrategy.NONE, sharing: Sharing | None = None
) -> dict[str, str]:
    """Return the labels that are set, without `nvidia.com/`."""
    found = gpu_labels(
        Facts(gpus=gpus, pci=(DEVICE,)), None, strategy=strategy, sharing=sharing or Sharing()
    )
    return {
        key.removeprefix("nvidia.com/"): value for key, value in found.items() if value is not None
    }


def base(labels: dict[str, str], resource: str = "gpu") -> tuple[str, ...]:
    return tuple(
        labels[f"{resource}.{name}"]
        for name in ("product", "count", "replicas", "sharing-strategy", "memory")
    )


def test_without_a_strategy_a_divided_gpu_has_no_replicas() -> None:
    labels = described(divided(SMALL), divided(SMALL))
    assert base(labels) == (MODEL, "2", "0", "none", "81559")
    assert base(described(GPU, divided(SMALL))) == (MODEL, "2", "1", "none", "81559")
    assert "mig.strategy" not in labels


def test_single_describes_the_mig_devices_as_gpus() -> None:
    labels = described(divided(SMALL, SMALL), divided(SMALL), strategy=MigStrategy.SINGLE)
    assert base(labels) == (f"{MODEL}-MIG-1g.10gb", "3", "1", "none", "9984")
    assert (labels["gpu.multiprocessors"], labels["gpu.slices.gi"]) == ("16", "1")
    assert (labels["gpu.family"], labels["mig.strategy"]) == ("hopper", "single")


@pytest.mark.parametrize(
    "gpus",
    [
        (divided(SMALL), GPU),
        (divided(SMALL), divided()),
        (divided(SMALL, MEDIA),),
        (divided(replace(SMALL, profile="")),),
    ],
    ids=["one undivided", "one empty", "two profiles", "an unknown profile"],
)
def test_single_refuses_what_it_cannot_describe(gpus: tuple[Gpu, ...]) -> None:
    labels = described(*gpus, strategy=MigStrategy.SINGLE)
    assert base(labels) == (f"{MODEL}-MIG-INVALID", "0", "0", "", "0")


def test_single_without_mig_is_as_without_a_strategy() -> None:
    labels = described(GPU, strategy=MigStrategy.SINGLE)
    assert labels == described(GPU) | {"mig.strategy": "single"}


def test_mixed_describes_each_profile() -> None:
    labels = described(divided(SMALL, SMALL, MEDIA), GPU, strategy=MigStrategy.MIXED)
    assert base(labels) == (MODEL, "2", "1", "none", "81559")
    one = base(labels, "mig-1g.10gb")
    assert one == (f"{MODEL}-MIG-1g.10gb", "2", "1", "none", "9984")
    assert labels["mig-1g.10gb.me.product"] == f"{MODEL}-MIG-1g.10gb.me"
    assert labels["mig-1g.10gb.me.engines.jpeg"] == "1"


def test_profiles_that_are_gone_lose_their_labels_and_unknown_gpus_do_not() -> None:
    policy = LabelPolicy(mig_strategy=MigStrategy.MIXED)
    first = labels_after(node(), ReportedFacts(facts=Facts(gpus=(divided(SMALL),))), policy)
    assert first["nvidia.com/mig-1g.10gb.count"] == "1"
    unknown = replace(GPU, name="")
    kept = labels_after(ours(first), ReportedFacts(facts=Facts(gpus=(unknown,))), policy)
    assert kept == first
    after = labels_after(ours(first), ReportedFacts(facts=Facts(gpus=(GPU,))), policy)
    assert [key for key in after if key.startswith("nvidia.com/mig-")] == []


@pytest.mark.parametrize(("renamed", "product"), [(False, f"{MODEL}-SHARED"), (True, MODEL)])
def test_a_shared_gpu_names_its_replicas(renamed: bool, product: str) -> None:
    shared = {"nvidia.com/gpu": SharedResource(replicas=4, renamed=renamed)}
    sharing = Sharing(strategy=SharingStrategy.TIME_SLICING, resources=shared)
    assert base(described(GPU, sharing=sharing)) == (product, "1", "4", "time-slicing", "81559")
    mps = Sharing(strategy=SharingStrategy.MPS, resources=shared)
    assert described(GPU, sharing=mps)["mps.capable"] == "true"
    assert "mps.capable" not in described(divided(SMALL), sharing=mps)


def test_the_mode_follows_from_the_pci_class() -> None:
    assert described(GPU)["gpu.mode"] == "compute"
    display = replace(DEVICE, device_class="0300")
    found = gpu_labels(Facts(gpus=(GPU,), pci=(display,)), None)
    assert found["nvidia.com/gpu.mode"] == "graphics"
    assert gpu_labels(Facts(gpus=(GPU,), pci=()), None)["nvidia.com/gpu.mode"] == "unknown"
    assert "nvidia.com/gpu.mode" not in gpu_labels(Facts(gpus=(GPU,)), None)


def test_a_machine_without_a_name_is_unknown_and_one_that_cannot_be_read_keeps_its_label() -> None:
    key = "nvidia.com/gpu.machine"
    assert gpu_labels(Facts(gpus=(GPU,), machine=""), None)[key] == "unknown"
    assert key not in gpu_labels(Facts(gpus=(GPU,)), None)


def test_gpus_of_one_clique_name_it() -> None:
    attached = replace(GPU, fabric="6f1d2c3b-8a47-4e59-9b1e-0c5d7a2f4e61.32766")
    assert described(attached, GPU)["gpu.clique"] == attached.fabric
    other = replace(GPU, fabric="6f1d2c3b-8a47-4e59-9b1e-0c5d7a2f4e61.1")
    assert "gpu.clique" not in described(attached, other)
