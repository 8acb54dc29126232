"""What the kubelet is told to prefer, by what a node offers: whole GPUs, MIG devices, replicas."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest

from libs.contracts.facts import Gpu
from libs.host.deviceplugin.port import AllocationRefused
from libs.policy.plugin_config.config import (
    MigStrategy,
    PluginConfig,
    SharingPolicy,
    TimeSlicing,
)
from services.driver.plugin.answers import Answers, Offered
from services.driver.plugin.inventory import Inventory
from services.driver.plugin.places import Place, nearness
from services.driver.plugin.replicas import uuid_of
from tests.unit.driver.plugin.builders import gpu

WHOLE, SMALL, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
DIVIDED = [gpu(0, *["1g.10gb"] * 3), gpu(1, *["1g.10gb"] * 3), gpu(2, "3g.40gb"), gpu(3)]
PLACES = {
    f"GPU-{index}": Place(numa_node=index // 2, bridges=(f"pci{index // 2}", f"root{index}"))
    for index in range(4)
}
"""Two sockets with two GPUs each."""
LINKED = {
    name: Place(
        numa_node=place.numa_node, bridges=place.bridges, address=name, link_ends=(other,) * 4
    )
    for (name, place), other in zip(
        PLACES.items(), ("GPU-3", "GPU-2", "GPU-1", "GPU-0"), strict=True
    )
}
"""GPUs of different sockets are joined by NVLinks."""


def answers(
    gpus: Sequence[Gpu],
    *,
    places: dict[str, Place] = PLACES,
    replicas: dict[str, int] | None = None,
    rename: bool = False,
    policy: SharingPolicy = SharingPolicy.DISTRIBUTED,
) -> Answers:
    config = PluginConfig(
        mig_strategy=MigStrategy.MIXED,
        time_slicing=TimeSlicing(replicas=replicas or {}, rename=rename),
        sharing_policy=policy,
    )
    found = Answers()
    inventory = Inventory().after(gpus, config)
    found.offered = Offered(config=config, inventory=inventory, places=places)
    return found


def prefer(given: Answers, resource: str, available: str, size: int, required: str = "") -> str:
    preferred = given.allocator_for(resource).prefer(available.split(), required.split(), size)
    return " ".join(preferred)


FOUR = [gpu(index) for index in range(4)]
MIGS = "MIG-0-0 MIG-0-1 MIG-0-2 MIG-1-0 MIG-1-1 MIG-1-2"


@pytest.mark.parametrize(
    ("available", "size", "required", "numa", "nvlink"),
    [
        ("GPU-0 GPU-1 GPU-2 GPU-3", 1, "", "GPU-0", "GPU-0"),
        ("GPU-0 GPU-1 GPU-2 GPU-3", 2, "", "GPU-0 GPU-1", "GPU-0 GPU-3"),
        ("GPU-1 GPU-2 GPU-3", 2, "", "GPU-2 GPU-3", "GPU-1 GPU-2"),
        ("GPU-0 GPU-1 GPU-2 GPU-3", 2, "GPU-2", "GPU-2 GPU-3", "GPU-1 GPU-2"),
        ("GPU-0 GPU-1 GPU-2", 1, "", "GPU-2", "GPU-0"),
        ("GPU-0 GPU-1 GPU-2 GPU-3", 2, "GPU-1 GPU-3", "GPU-1 GPU-3", "GPU-1 GPU-3"),
        ("GPU-3 GPU-2 GPU-1 GPU-0", 4, "", "GPU-3 GPU-2 GPU-1 GPU-0", "GPU-3 GPU-2 GPU-1 GPU-0"),
    ],
)
def test_whole_gpus_are_of_one_socket_unless_nvlinks_join_others(
    available: str, size: int, required: str, numa: str, nvlink: str
) -> None:
    assert prefer(answers(FOUR), WHOLE, available, size, required) == numa
    assert prefer(answers(FOUR, places=LINKED), WHOLE, available, size, required) == nvlink


def test_gpus_without_known_bridges_are_of_one_socket() -> None:
    places = {name: Place(numa_node=place.numa_node) for name, place in PLACES.items()}
    assert prefer(answers(FOUR, places=places), WHOLE, "GPU-1 GPU-2 GPU-3", 2) == "GPU-2 GPU-3"


def test_gpus_whose_places_are_not_known_are_given_in_order() -> None:
    assert prefer(answers(FOUR, places={}), WHOLE, "GPU-1 GPU-2 GPU-3", 2) == "GPU-1 GPU-2"


@pytest.mark.parametrize(
    ("available", "size", "required", "distributed", "packed"),
    [
        (MIGS, 2, "", "MIG-0-0 MIG-1-0", "MIG-0-0 MIG-0-1"),
        (MIGS, 4, "", "MIG-0-0 MIG-1-0 MIG-0-1 MIG-1-1", "MIG-0-0 MIG-0-1 MIG-0-2 MIG-1-0"),
        ("MIG-0-2 MIG-1-0 MIG-1-1 MIG-1-2", 2, "", "MIG-1-0 MIG-1-1", "MIG-0-2 MIG-1-0"),
        (MIGS, 2, "MIG-0-1", "MIG-0-1 MIG-1-0", "MIG-0-1 MIG-0-0"),
        (MIGS, 3, "MIG-0-1", "MIG-0-1 MIG-1-0 MIG-0-0", "MIG-0-1 MIG-0-0 MIG-0-2"),
        (MIGS, 2, "MIG-1-0 MIG-1-1", "MIG-1-0 MIG-1-1", "MIG-1-0 MIG-1-1"),
    ],
)
def test_mig_devices_are_chosen_by_what_is_used_of_their_gpus(
    available: str, size: int, required: str, distributed: str, packed: str
) -> None:
    assert prefer(answers(DIVIDED), SMALL, available, size, required) == distributed
    dense = answers(DIVIDED, policy=SharingPolicy.PACKED)
    assert prefer(dense, SMALL, available, size, required) == packed


def test_each_resource_has_its_own_rule_and_devices() -> None:
    given = answers([*DIVIDED, gpu(4)], places={})
    assert prefer(given, LARGE, "MIG-2-0", 1) == "MIG-2-0"
    assert prefer(given, WHOLE, "GPU-3 GPU-4", 2, "GPU-4") == "GPU-3 GPU-4"


@pytest.mark.parametrize(
    ("resource", "rename"), [(WHOLE, False), (f"{WHOLE}.shared", True)], ids=["kept", "renamed"]
)
def test_replicas_are_spread_over_gpus_until_all_are_taken(resource: str, rename: bool) -> None:
    given = answers(FOUR, replicas={WHOLE: 3}, rename=rename)
    left = [f"GPU-{index}::{number}" for index in range(4) for number in range(3)]
    used = Counter[str]()
    for _ in range(12):
        share = prefer(given, resource, " ".join(left), 1)
        left.remove(share)
        used[uuid_of(share)] += 1
        assert max(used.values()) - min(used[name] for name in PLACES) <= 1
    assert not left


def test_replicas_of_one_container_are_of_as_many_gpus_as_can_be() -> None:
    given = answers(FOUR, replicas={WHOLE: 2})
    shares = [f"GPU-{index}::{number}" for index in range(4) for number in range(2)]
    for size in range(1, 9):
        got = given.allocator_for(WHOLE).prefer(shares, [], size)
        assert len(set(got)) == size
        assert len(set(map(uuid_of, got))) == min(size, 4)


def test_replicas_of_mig_devices_count_for_their_gpu() -> None:
    given = answers(DIVIDED, replicas={SMALL: 2})
    # One of six shares of the first GPU is in use, and two of six of the other one.
    left = [
        *(f"MIG-0-{number}::{share}" for number in range(3) for share in range(2)),
        *(f"MIG-1-{number}::{share}" for number in range(3) for share in range(2)),
    ]
    for taken in ("MIG-0-0::0", "MIG-1-0::0", "MIG-1-1::0"):
        left.remove(taken)
    assert prefer(given, SMALL, " ".join(left), 2) == "MIG-0-0::1 MIG-1-0::1"
    assert prefer(given, SMALL, " ".join(left), 2, "MIG-1-2::1") == "MIG-1-2::1 MIG-0-0::1"


def test_what_is_used_of_gpus_with_different_divisions_is_counted_in_shares() -> None:
    given = answers([gpu(0, *["1g.10gb"] * 3), gpu(1, "1g.10gb")], replicas={SMALL: 3})
    # Three of nine shares of the first GPU are in use, and two of three of the other one.
    left = [f"MIG-0-{number}::{share}" for number in range(2) for share in range(3)]
    assert prefer(given, SMALL, " ".join([*left, "MIG-1-0::2"]), 1) == "MIG-1-0::2"


def test_of_gpus_with_equal_use_the_one_that_was_picked_least_is_next() -> None:
    given = answers(FOUR, replicas={WHOLE: 2})
    # GPU-1 already has a container; after one pick GPU-0 is used as much as that.
    left = "GPU-0::0 GPU-0::1 GPU-1::1"
    assert prefer(given, WHOLE, left, 2) == "GPU-0::0 GPU-1::1"


@pytest.mark.parametrize(
    ("gpus", "resource", "replicas", "available"),
    [
        (FOUR, WHOLE, {}, "GPU-0 GPU-1"),
        (FOUR, WHOLE, {WHOLE: 2}, "GPU-0::0 GPU-1::0"),
        (DIVIDED, SMALL, {}, "MIG-0-0 MIG-1-0"),
    ],
)
def test_more_than_there_is_is_refused(
    gpus: Sequence[Gpu], resource: str, replicas: dict[str, int], available: str
) -> None:
    given = answers(gpus, replicas=replicas)
    with pytest.raises(AllocationRefused, match="not enough available devices"):
        prefer(given, resource, available, 3)
    assert set(prefer(given, resource, available, 2).split()) == set(available.split())


# NVIDIA's rule: of all divisions of the available GPUs into groups, the one with the best sum.


def divisions(names: tuple[str, ...], size: int) -> list[list[tuple[str, ...]]]:
    """Return all divisions into groups of this size, of a number that it divides."""
    if not names:
        return [[]]
    first, *others = names
    return [
        [(first, *more), *rest]
        for more in combinations(others, size - 1)
        for rest in divisions(tuple(each for each in others if each not in more), size)
    ]


@pytest.mark.parametrize("places", [PLACES, LINKED], ids=["numa", "nvlink"])
@pytest.mark.parametrize("required", ["", *PLACES])
def test_a_group_is_no_worse_than_by_nvidias_rule(places: dict[str, Place], required: str) -> None:
    def score(group: Sequence[str]) -> int:
        return sum(nearness(places[one], places[other]) for one, other in combinations(group, 2))

    best = max(divisions(tuple(PLACES), 2), key=lambda groups: sum(map(score, groups)))
    theirs = max((each for each in best if not required or required in each), key=score)
    ours = prefer(answers(FOUR, places=places), WHOLE, " ".join(PLACES), 2, required).split()
    assert score(ours) == score(theirs)
    assert not required or required in ours
