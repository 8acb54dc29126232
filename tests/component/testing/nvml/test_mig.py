"""Partitioned GPUs: modes, geometries, and what their instances are."""

import random
import time
from collections.abc import Callable

import pynvml
import pytest

from libs.testing.nvml import Return, StandIn, profiles
from libs.testing.nvml.products import A100, GB200, H100, MIB, Product
from libs.testing.nvml.profiles import Profile
from tests.component.testing.nvml.client import Client, Refused, refused, waits_for_a_lock
from tests.component.testing.nvml.client_process import Handle
from tests.component.testing.nvml.geometry import WHOLE, layout, mig_devices, partition, profile_id

ONE = pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE


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


def test_seven_of_the_smallest(mig_gpu: Handle, client: Client) -> None:
    wanted = profile_id(H100, "1g.10gb")
    assert client.nvmlDeviceGetGpuInstanceRemainingCapacity(mig_gpu, wanted) == 7
    instances = partition(client, mig_gpu, H100, *["1g.10gb"] * 7)
    assert sorted(layout(client, instances)) == [(start, 1) for start in range(7)]
    assert client.nvmlDeviceGetGpuInstanceRemainingCapacity(mig_gpu, wanted) == 0
    with refused(Return.INSUFFICIENT_RESOURCES):
        client.nvmlDeviceCreateGpuInstance(mig_gpu, wanted)
    devices = mig_devices(client, mig_gpu)
    assert len({client.nvmlDeviceGetUUID(device) for device in devices}) == 7
    for index, device in enumerate(devices):
        attributes = client.nvmlDeviceGetAttributes(device)
        assert client.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert client.nvmlDeviceGetIndex(device) == index
        assert client.nvmlDeviceIsMigDeviceHandle(device) == 1
        assert client.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device) == mig_gpu
        assert client.nvmlDeviceGetComputeInstanceId(device) == 0
        assert (attributes["multiprocessorCount"], attributes["memorySizeMB"]) == (16, 9984)
        assert (attributes["gpuInstanceSliceCount"], attributes["sharedDecoderCount"]) == (1, 1)
        assert client.nvmlDeviceGetMemoryInfo(device)["total"] == 9984 * MIB


def test_a_mixed_geometry(mig_gpu: Handle, client: Client) -> None:
    names = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
    instances = partition(client, mig_gpu, H100, *names)
    taken = [
        slot for start, size in layout(client, instances) for slot in range(start, start + size)
    ]
    assert sorted(taken) == list(range(8))
    found = [
        client.nvmlDeviceGetName(item).rpartition(" ")[2] for item in mig_devices(client, mig_gpu)
    ]
    assert found == names
    assert len(client.gpu_instances(mig_gpu, profile_id(H100, "1g.10gb"))) == 2
    ids = [client.nvmlGpuInstanceGetInfo(item)["id"] for item in instances]
    assert [client.nvmlDeviceGetGpuInstanceById(mig_gpu, number) for number in ids] == instances


def test_a_placement_that_the_product_has_not_is_refused(mig_gpu: Handle, client: Client) -> None:
    wanted = profile_id(H100, "2g.20gb")
    for start, size in ((1, 2), (6, 2), (0, 1)):
        with refused(Return.INVALID_ARGUMENT):
            client.create_at(mig_gpu, wanted, start, size)
    assert client.gpu_instances(mig_gpu, wanted) == []


def test_a_placement_that_is_taken_is_refused(mig_gpu: Handle, client: Client) -> None:
    small, half = profile_id(H100, "1g.10gb"), profile_id(H100, "3g.40gb")
    instance = client.create_at(mig_gpu, small, 2, 1)
    with refused(Return.INSUFFICIENT_RESOURCES):
        client.create_at(mig_gpu, half, 0, 4)
    client.nvmlGpuInstanceDestroy(instance)
    assert layout(client, [client.create_at(mig_gpu, half, 0, 4)]) == [(0, 4)]


def test_order_matters_as_memory_does(mig_gpu: Handle, client: Client) -> None:
    """Free slices are not enough: they must begin where the profile may."""
    small = profile_id(H100, "1g.10gb")
    for start in (1, 5):
        client.create_at(mig_gpu, small, start, 1)
    half = profile_id(H100, "3g.40gb")
    assert client.nvmlDeviceGetGpuInstanceRemainingCapacity(mig_gpu, half) == 0
    with refused(Return.INSUFFICIENT_RESOURCES):
        client.nvmlDeviceCreateGpuInstance(mig_gpu, half)


def test_one_instance_with_the_media_engines(mig_gpu: Handle, client: Client) -> None:
    partition(client, mig_gpu, H100, "1g.10gb+me")
    with refused(Return.INSUFFICIENT_RESOURCES):
        partition(client, mig_gpu, H100, "1g.10gb+me")


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


def test_compute_instances_share_a_gpu_instance(mig_gpu: Handle, client: Client) -> None:
    instance = client.nvmlDeviceCreateGpuInstance(mig_gpu, profile_id(H100, "3g.40gb"))
    info = client.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, ONE, 0)
    assert (info["name"], info["multiprocessorCount"]) == ("MIG 1c.3g.40gb", 16)
    for left in (3, 2, 1):
        remaining = client.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, ONE)
        assert remaining == left
        client.nvmlGpuInstanceCreateComputeInstance(instance, ONE)
    with refused(Return.INSUFFICIENT_RESOURCES):
        client.nvmlGpuInstanceCreateComputeInstance(instance, ONE)
    devices = mig_devices(client, mig_gpu)
    assert [client.nvmlDeviceGetComputeInstanceId(device) for device in devices] == [0, 1, 2]
    assert len({client.nvmlDeviceGetGpuInstanceId(device) for device in devices}) == 1
    assert client.nvmlDeviceGetName(devices[0]).endswith(" MIG 1c.3g.40gb")
    found = client.compute_instances(instance, ONE)
    assert client.nvmlComputeInstanceGetInfo_v2(found[2])["placement"] == {"start": 2, "size": 1}


def test_an_instance_in_use_is_not_destroyed(
    mig_gpu: Handle, client: Client, h100: StandIn
) -> None:
    [instance] = partition(client, mig_gpu, H100, "7g.80gb")
    [compute] = client.compute_instances(instance, WHOLE[7])
    with refused(Return.IN_USE):
        client.nvmlGpuInstanceDestroy(instance)
    h100.gpus[0].add_process(4711, gpu_instance=0, compute_instance=0)
    assert len(client.processes(mig_devices(client, mig_gpu)[0])) == 1
    with refused(Return.IN_USE):
        client.nvmlComputeInstanceDestroy(compute)
    h100.gpus[0].end_processes()
    client.nvmlComputeInstanceDestroy(compute)
    client.nvmlGpuInstanceDestroy(instance)
    assert mig_devices(client, mig_gpu) == []


def test_what_was_destroyed_is_no_longer_valid(mig_gpu: Handle, client: Client) -> None:
    [instance] = partition(client, mig_gpu, H100, "7g.80gb")
    [device] = mig_devices(client, mig_gpu)
    uuid = client.nvmlDeviceGetUUID(device)
    assert client.nvmlDeviceGetHandleByUUID(uuid.encode()) == device
    client.nvmlComputeInstanceDestroy(client.compute_instances(instance, WHOLE[7])[0])
    client.nvmlGpuInstanceDestroy(instance)
    for call in (client.nvmlDeviceGetUUID, client.nvmlDeviceGetAttributes):
        with refused(Return.INVALID_ARGUMENT):
            call(device)
    with refused(Return.NOT_FOUND):
        client.nvmlDeviceGetHandleByUUID(uuid.encode())
    partition(client, mig_gpu, H100, "7g.80gb")
    [again] = mig_devices(client, mig_gpu)
    assert again != device
    assert client.nvmlDeviceGetUUID(again) == uuid


def test_a_mig_device_is_not_measured_as_a_gpu(mig_gpu: Handle, client: Client) -> None:
    partition(client, mig_gpu, H100, "7g.80gb")
    [device] = mig_devices(client, mig_gpu)
    with refused(Return.NOT_SUPPORTED):
        client.nvmlDeviceGetTemperature(device, 0)
    with refused(Return.NOT_SUPPORTED):
        client.nvmlDeviceGetUtilizationRates(mig_gpu)
    with refused(Return.NOT_SUPPORTED):
        client.nvmlDeviceGetAttributes(mig_gpu)
    assert client.nvmlDeviceGetTemperature(mig_gpu, 0) == 30


def test_an_instance_is_profiled(mig_gpu: Handle, client: Client, h100: StandIn) -> None:
    partition(client, mig_gpu, H100, "7g.80gb")
    h100.gpus[0].profiling.sm = 33.0
    samples = [client.nvmlGpmMigSampleGet(mig_gpu, 0, client.nvmlGpmSampleAlloc()) for _ in "12"]
    assert client.measure(*samples, [pynvml.NVML_GPM_METRIC_SM_UTIL]) == [[0, 33.0]]
    with refused(Return.INVALID_ARGUMENT):
        client.nvmlGpmMigSampleGet(mig_gpu, 5, samples[0])


def test_the_mode_of_an_a100_is_pending_until_a_reset(a100: StandIn, client: Client) -> None:
    gpu = client.gpu(0)
    assert client.nvmlDeviceSetMigMode(gpu, 1) == Return.RESET_REQUIRED
    assert client.nvmlDeviceGetMigMode(gpu) == [0, 1]
    assert client.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0
    with refused(Return.NOT_SUPPORTED):
        client.nvmlDeviceCreateGpuInstance(gpu, profile_id(A100, "1g.5gb"))
    a100.gpus[0].reset()
    assert client.nvmlDeviceGetMigMode(gpu) == [1, 1]
    partition(client, gpu, A100, "3g.20gb", "3g.20gb")
    assert len(mig_devices(client, gpu)) == 2
    assert client.nvmlDeviceGetMigMode(client.gpu(1)) == [0, 0]


def test_a_gpu_in_use_does_not_change_its_mode(h100: StandIn, client: Client) -> None:
    gpu = client.gpu(0)
    h100.gpus[0].add_process(4711)
    assert client.nvmlDeviceSetMigMode(gpu, 1) == Return.IN_USE
    assert client.nvmlDeviceGetMigMode(gpu) == [0, 1]
    assert client.nvmlDeviceSetMigMode(gpu, 0) == Return.SUCCESS
    assert client.nvmlDeviceGetMigMode(gpu) == [0, 0]


def test_instances_keep_the_mode(mig_gpu: Handle, client: Client) -> None:
    partition(client, mig_gpu, H100, "7g.80gb")
    assert client.nvmlDeviceSetMigMode(mig_gpu, 0) == Return.IN_USE
    assert client.nvmlDeviceGetMigMode(mig_gpu) == [1, 0]


def test_the_driver_takes_all_instances_with_it(
    machine: Callable[[Profile], StandIn], client: Client
) -> None:
    modes: dict[str, list[int]] = {}
    for name in ("H100-80GB", "A100-40GB"):
        product = profiles.ALL[name].product
        stand_in = machine(profiles.ALL[name])
        stand_in.gpus[0].mig.mode = stand_in.gpus[0].mig.pending_mode = 1
        client.open(stand_in)
        partition(client, client.gpu(0), product, product.mig[-1].name)
        client.close_library()
        stand_in.unload()
        stand_in.load()
        client.nvmlInit()
        assert mig_devices(client, client.gpu(0)) == []
        modes[name] = client.nvmlDeviceGetMigMode(client.gpu(0))
        client.close_library()
    assert modes == {"H100-80GB": [0, 0], "A100-40GB": [1, 1]}


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


def test_two_processes_see_the_same_mig_devices(
    mig_gpu: Handle, h100: StandIn, client: Client, new_client: Callable[[], Client]
) -> None:
    other = new_client()
    other.open(h100)
    partition(client, mig_gpu, H100, "4g.40gb", "3g.40gb")
    uuids = [
        [each.nvmlDeviceGetUUID(device) for device in mig_devices(each, mig_gpu)]
        for each in (client, other)
    ]
    assert len(uuids[0]) == 2
    assert uuids[0] == uuids[1]
