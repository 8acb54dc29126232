"""Partitioned GPUs: modes, geometries, and what their instances are."""

import random
import time
from collections.abc import Callable

import pynvml
import pytest

from libs.testing.nvml import Return, StandIn, profiles
from libs.testing.nvml.products import A100, GB200, H100, Product
from libs.testing.nvml.profiles import Profile
from tests.component.testing.nvml.client import Client, Refused, refused, waits_for_a_lock
from tests.component.testing.nvml.client_process import Handle
from tests.component.testing.nvml.geometry import layout, profile_id


@pytest.fixture
def mig_gpu(h100: StandIn, client: Client) -> Handle:
    """An H100 in MIG mode, without instances."""
    gpu = client.gpu(0)
    assert client.nvmlDeviceSetMigMode(gpu, pynvml.NVML_DEVICE_MIG_ENABLE) == Return.SUCCESS
    assert client.nvmlDeviceGetMigMode(gpu) == [1, 1]
    return gpu


def test_profiles_are_those_of_the_product(mig_gpu: Handle, client: Client) -> None:
    seen: dict[str, tuple[int, ...]] = {}
    for constant in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = client.nvmlDeviceGetGpuInstanceProfileInfo(mig_gpu, constant)
        except Refused as refusal:
            assert refusal.code == Return.NOT_SUPPORTED  # noqa: PT017
            continue
        old = client.nvmlDeviceGetGpuInstanceProfileInfo(mig_gpu, constant, 1)
        assert {**info, "version": 0, "name": ""} == {**old, "version": 0, "name": ""}
        starts = client.placements(mig_gpu, info["id"])
        seen[info["name"].removeprefix("MIG ")] = (
            info["id"], info["sliceCount"], info["instanceCount"], info["memorySizeMB"],
            info["multiprocessorCount"], len(starts), starts[0][1],
        )  # fmt: skip
    assert seen == {
        "1g.10gb": (19, 1, 7, 9984, 16, 7, 1),
        "1g.10gb+me": (20, 1, 1, 9984, 16, 7, 1),
        "1g.20gb": (15, 1, 4, 20096, 26, 4, 2),
        "2g.20gb": (14, 2, 3, 20096, 32, 3, 2),
        "3g.40gb": (9, 3, 2, 40448, 60, 2, 4),
        "4g.40gb": (5, 4, 1, 40448, 64, 1, 4),
        "7g.80gb": (0, 7, 1, 81152, 132, 1, 8),
    }


def test_order_matters_as_memory_does(mig_gpu: Handle, client: Client) -> None:
    """Free slices are not enough: they must begin where the profile may."""
    small = profile_id(H100, "1g.10gb")
    for start in (1, 5):
        client.create_at(mig_gpu, small, start, 1)
    half = profile_id(H100, "3g.40gb")
    assert client.nvmlDeviceGetGpuInstanceRemainingCapacity(mig_gpu, half) == 0
    with refused(Return.INSUFFICIENT_RESOURCES):
        client.nvmlDeviceCreateGpuInstance(mig_gpu, half)


@pytest.mark.parametrize("product", [H100, A100, GB200], ids=lambda product: product.name)
def test_no_sequence_of_calls_gives_a_slice_twice(
    machine: Callable[[Profile], StandIn], client: Client, product: Product
) -> None:
    stand_in = machine(next(item for item in profiles.ALL.values() if item.product is product))
    stand_in.gpus[0].mig.mode = stand_in.gpus[0].mig.pending_mode = 1
    client.open(stand_in)
    gpu, chance = client.gpu(0), random.Random(1)
    instances: dict[Handle, str] = {}
    slices = {kind.name: kind.slices for kind in product.mig}
    refusals = 0
    for _ in range(300):
        if instances and chance.random() < 0.4:
            gone = chance.choice(sorted(instances, key=lambda item: item.number))
            client.nvmlGpuInstanceDestroy(gone)
            del instances[gone]
            continue
        kind = chance.choice(product.mig)
        room = client.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, kind.id)
        try:
            instances[client.nvmlDeviceCreateGpuInstance(gpu, kind.id)] = kind.name
            assert room > 0
        except Refused as refusal:
            assert (refusal.code, room) == (Return.INSUFFICIENT_RESOURCES, 0)  # noqa: PT017
            refusals += 1
        places = layout(client, list(instances))
        taken = [slot for start, size in places for slot in range(start, start + size)]
        assert len(taken) == len(set(taken))
        assert max(taken) < 8
        assert sum(slices[name] for name in instances.values()) <= 7
    assert refusals > 20


@pytest.mark.parametrize("product", [H100, A100, GB200], ids=lambda product: product.name)
def test_a_profile_is_named_by_its_share_of_the_memory(product: Product) -> None:
    """The rule by which clients name profiles, rounding up to eighths and then half up."""
    for kind in product.mig:
        eighths = -(-kind.memory_mib * 8 // product.memory_mib)
        gib = int(eighths * -(-product.memory_mib // 1024) / 8 + 0.5)
        assert kind.name.removesuffix("+me") == f"{kind.slices}g.{gib}gb"


def test_two_processes_see_and_share_one_gpu(
    mig_gpu: Handle, h100: StandIn, client: Client, new_client: Callable[[], Client]
) -> None:
    other = new_client()
    other.open(h100)
    clients = [client, other]
    wanted = profile_id(H100, "1g.10gb")
    for each in clients:
        each.begin("create_all", mig_gpu, wanted)
    created = [each.finish() for each in clients]
    assert sum(created) == 7
    assert [len(each.gpu_instances(mig_gpu, wanted)) for each in clients] == [7, 7]


def test_instances_change_only_under_their_lock(
    mig_gpu: Handle, h100: StandIn, client: Client
) -> None:
    with h100.instances():
        client.send("nvmlDeviceCreateGpuInstance", mig_gpu, profile_id(H100, "7g.80gb"))
        while not waits_for_a_lock(h100):
            time.sleep(0.001)
        assert h100.gpus[0].mig.serials == 0
    assert layout(client, [client.receive()]) == [(0, 8)]
