"""Which devices a container should get."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.host.deviceplugin.port import AllocationRefused
from libs.policy.plugin_config.config import SharingPolicy
from services.driver.plugin.places import Place, nearness
from services.driver.plugin.preferred import preferred_gpus, preferred_shares
from services.driver.plugin.replicas import uuid_of

EIGHT = tuple("abcdefgh")
PLACES = {
    name: Place(
        numa_node=index // 4,
        bridges=(f"pci{index // 4}", f"root{index // 2}", f"switch{index // 2}", f"port{index}"),
    )
    for index, name in enumerate(EIGHT)
}
"""Two sockets with four GPUs each, two of which share a switch."""


def chosen(
    available: str, size: int, required: str = "", *, places: dict[str, Place] = PLACES
) -> str:
    def near(one: str, other: str) -> int:
        return nearness(places[one], places[other])

    return "".join(preferred_gpus(tuple(available), tuple(required), size, nearness=near))


@pytest.mark.parametrize(
    ("available", "size", "required", "result"),
    [
        ("abcdefgh", 1, "", "a"),
        ("abcdefgh", 2, "", "ab"),
        ("abcdefgh", 4, "", "abcd"),
        ("abcdefgh", 8, "", "abcdefgh"),
        ("bcdefgh", 2, "", "cd"),
        ("bcefgh", 4, "", "efgh"),
        ("acdeg", 1, "", "e"),
        ("cda", 1, "", "a"),
        ("cdef", 2, "d", "cd"),
        ("bch", 2, "h", "bh"),
        ("bceh", 2, "h", "eh"),
        ("abc", 3, "c", "abc"),
        ("", 0, "", ""),
    ],
)
def test_gpus_near_each_other_are_chosen(
    available: str, size: int, required: str, result: str
) -> None:
    assert chosen(available, size, required) == result


def test_gpus_are_nearer_the_more_they_share_of_the_bus() -> None:
    def near(first: Place, second: Place) -> int:
        assert nearness(first, second) == nearness(second, first)
        return nearness(first, second)

    root = Place(numa_node=0, bridges=("pci0", "other"))
    levels = [near(PLACES["a"], PLACES[name]) for name in "bce"] + [near(PLACES["a"], root)]
    assert levels == [50, 30, 10, 30]
    deep = Place(numa_node=0, bridges=("pci0", "root0", "switch0", "port9", "switch9", "port10"))
    assert near(PLACES["a"], deep) == 40
    unknown = Place(numa_node=1)
    assert [near(unknown, PLACES[name]) for name in "ae"] == [10, 20]


def linked(*pairs: str) -> dict[str, Place]:
    """Return the places, with an NVLink for each pair of GPUs, `s` being an NVSwitch."""
    ends: dict[str, list[str]] = {name: [] for name in (*EIGHT, "s")}
    for one, other in pairs:
        ends[one].append(other)
        ends[other].append(one)
    return {
        name: replace(place, address=name, link_ends=tuple(ends[name]))
        for name, place in PLACES.items()
    }


@pytest.mark.parametrize(
    ("pairs", "available", "size", "required", "result"),
    [
        ("ah", "abcdefgh", 2, "", "ah"),
        ("ah bg", "bcdefgh", 2, "", "bg"),
        ("ah bg bg", "abcdefgh", 2, "", "bg"),
        ("ah", "abcdefgh", 2, "b", "ab"),
        ("ae ae ah eh bf", "abcdefgh", 3, "", "aeh"),
        ("ab cd ac bd", "abcdefgh", 4, "", "abcd"),
        ("as bs cs ds es fs gs hs", "bcdefgh", 2, "", "cd"),
        ("ah", "abcdefgh", 1, "", "b"),
    ],
)
def test_nvlinks_count_more_than_places(
    pairs: str, available: str, size: int, required: str, result: str
) -> None:
    assert chosen(available, size, required, places=linked(*pairs.split())) == result


@given(
    pairs=st.lists(st.sampled_from(["".join(pair) for pair in combinations("abcdefs", 2)])),
    available=st.lists(st.sampled_from("abcdef"), unique=True, min_size=1).map("".join),
    more=st.data(),
)
def test_no_other_group_is_nearer(pairs: list[str], available: str, more: st.DataObject) -> None:
    size = more.draw(st.integers(1, len(available)))
    required = available[: more.draw(st.integers(0, size))]
    places = linked(*pairs)

    def score(group: str) -> int:
        return sum(nearness(places[one], places[other]) for one, other in combinations(group, 2))

    result = chosen(available, size, required, places=places)
    assert len(set(result)) == size
    assert set(required) <= set(result) <= set(available)
    groups = map("".join, combinations(available, size))
    assert score(result) == max(score(each) for each in groups if set(required) <= set(each))
    without_switches = linked(*(pair for pair in pairs if "s" not in pair))
    assert chosen(available, size, required, places=without_switches) == result


def test_many_gpus_are_chosen_one_by_one() -> None:
    names = tuple(f"{index:02}" for index in range(64))

    def near(one: str, other: str) -> int:
        return 50 if int(one) // 16 == int(other) // 16 else 10

    assert preferred_gpus(names, names[40:41], 16, nearness=near) == names[32:48]


@pytest.mark.parametrize(
    ("policy", "required", "result"),
    [
        (SharingPolicy.DISTRIBUTED, "", "b::0 c::0 a::1"),
        (SharingPolicy.PACKED, "", "a::1 a::2 b::0"),
        (SharingPolicy.PACKED, "b::1", "b::1 a::1 a::2"),
    ],
    ids=["distributed", "packed", "those that are required first"],
)
def test_shares_are_distributed_or_packed(
    policy: SharingPolicy, required: str, result: str
) -> None:
    shares = [f"{gpu}::{number}" for gpu in "abc" for number in range(3)]
    totals = dict.fromkeys("abc", 3)
    got = preferred_shares(
        shares[1:], required.split(), 3, policy=policy, totals=totals, gpu_of=uuid_of
    )
    assert got == tuple(result.split())


def test_more_than_there_is_is_refused() -> None:
    for available, required, size in (("ab", "", 3), ("ab", "ab", 1)):
        with pytest.raises(AllocationRefused, match="not enough available devices"):
            chosen(available, size, required)


def test_devices_that_are_preferred_are_in_the_order_of_the_list() -> None:
    got = chosen("hgfedcba", 4)
    assert all(EIGHT.index(one) > EIGHT.index(other) for one, other in pairwise(got))
