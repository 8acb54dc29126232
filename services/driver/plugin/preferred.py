"""Which of the available devices a container should get. Pure.

Whole GPUs are chosen so that they are near each other, and so that others that are near each other
stay together. Shared devices and MIG devices are chosen by the containers that their GPU has.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final

from libs.host.deviceplugin.port import AllocationRefused
from libs.policy.plugin_config.config import SharingPolicy

MAX_GROUPS: Final = 20_000
"""The most groups that are compared; beyond them GPUs are chosen one by one."""

Nearness = Callable[[str, str], int]
"""Returns how near two GPUs are; more is nearer."""


def preferred_gpus(
    available: Sequence[str], required: Sequence[str], size: int, *, nearness: Nearness
) -> tuple[str, ...]:
    """Return whole GPUs that are near each other, in the order of `available`."""
    others = _others(available, required, size)
    count = size - len(required)
    if comb(len(others), count) <= MAX_GROUPS:
        chosen = _best_group(others, required, count, nearness)
    else:
        chosen = _one_by_one(others, required, count, nearness)
    wanted = {*required, *chosen}
    return tuple(each for each in (*available, *required) if each in wanted)[:size]


def preferred_shares(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    *,
    policy: SharingPolicy,
    totals: Mapping[str, int],
    gpu_of: Callable[[str], str],
) -> tuple[str, ...]:
    """Return shares of GPUs; `totals` are the shares of each GPU."""
    others = _others(available, required, size)
    used, picked = Counter[str](totals), Counter[str]()
    used.subtract(map(gpu_of, others))
    sign = 1 if policy is SharingPolicy.DISTRIBUTED else -1
    result = list(required)
    while len(result) < size:
        best = min(others, key=lambda each: (sign * used[gpu_of(each)], picked[gpu_of(each)]))
        others.remove(best)
        result.append(best)
        used[gpu_of(best)] += 1
        picked[gpu_of(best)] += 1
    return tuple(result)


def _others(available: Sequence[str], required: Collection[str], size: int) -> list[str]:
    others = [each for each in dict.fromkeys(available) if each not in required]
    if size < len(required) or size > len(required) + len(others):
        raise AllocationRefused("not enough available devices to satisfy allocation")
    return others


def _best_group(
    others: Sequence[str], required: Sequence[str], count: int, nearness: Nearness
) -> tuple[str, ...]:
    names = [*required, *others]
    near = {pair: nearness(*pair) for pair in combinations(names, 2)}
    total = {name: sum(value for pair, value in near.items() if name in pair) for name in names}

    def score(group: Sequence[str]) -> tuple[int, int]:
        """Return how near the members are, and then how little of the rest is separated."""
        members = [name for name in names if name in {*required, *group}]
        within = sum(near[pair] for pair in combinations(members, 2))
        separated = sum(total[name] for name in members) - 2 * within
        return within, -separated

    return max(combinations(others, count), key=score)


def _one_by_one(
    others: Sequence[str], required: Sequence[str], count: int, nearness: Nearness
) -> list[str]:
    left, chosen = list(others), list(required)
    for _ in range(count):
        best = max(left, key=lambda each: sum(nearness(each, other) for other in chosen))
        left.remove(best)
        chosen.append(best)
    return chosen[len(required) :]
