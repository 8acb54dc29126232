"""What each product's MIG profiles are, and where on the GPU their instances may lie.

A GPU has eight slices of memory, or four, and seven or four compute slices. Where the memory of an
instance fits, its compute slices do. The table is for planning without a board: what the driver of
a board says goes before it, and what neither says is left to the driver's judgement.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from libs.contracts.facts import MigBoard, MigKind
from libs.policy.mig.profiles import parse_profile


class Kind(NamedTuple):
    """One profile of GPU instances."""

    most: int
    """How many of it a GPU has at most."""
    size: int
    """In slices of memory."""
    starts: tuple[int, ...]
    """The slices of memory at which it may begin."""


class Product(NamedTuple):
    name: str
    kinds: Mapping[str, Kind]
    """By name of the profile; drivers differ in some names."""
    balanced: Mapping[str, int]
    """The number of each profile in a mix of sizes that fills the GPU."""


_EIGHTHS: Final = {
    "1g": Kind(7, 1, tuple(range(7))),
    "1g+me": Kind(1, 1, tuple(range(7))),
    "1g double": Kind(4, 2, (0, 2, 4, 6)),
    "2g": Kind(3, 2, (0, 2, 4)),
    "3g": Kind(2, 4, (0, 4)),
    "4g": Kind(1, 4, (0,)),
    "7g": Kind(1, 8, (0,)),
}
_QUARTERS: Final = {
    "1g": Kind(4, 1, (0, 1, 2, 3)),
    "2g": Kind(2, 2, (0, 2)),
    "4g": Kind(1, 4, (0,)),
}


def _eighths(
    name: str, *, one: str, double: str, half: str, whole: str, media: bool = True
) -> Product:
    """Return a product of seven compute slices; each argument has the gigabytes in names."""
    kinds = {f"1g.{each}gb": _EIGHTHS["1g"] for each in one.split()}
    if media:
        kinds |= {f"1g.{each}gb+me": _EIGHTHS["1g+me"] for each in one.split()}
    kinds[f"1g.{double}gb"] = _EIGHTHS["1g double"]
    kinds[f"2g.{double}gb"] = _EIGHTHS["2g"]
    kinds |= {f"{g}g.{each}gb": _EIGHTHS[f"{g}g"] for g in (3, 4) for each in half.split()}
    kinds |= {f"7g.{each}gb": _EIGHTHS["7g"] for each in whole.split()}
    first, larger = one.split(maxsplit=1)[0], half.split(maxsplit=1)[0]
    balanced = {f"1g.{first}gb": 2, f"2g.{double}gb": 1, f"3g.{larger}gb": 1}
    return Product(name, kinds, balanced)


def _quarters(
    name: str, variants: Mapping[str, int | None], balanced: Mapping[str, int]
) -> Product:
    """Return a product of four compute slices; `variants`: the limits other than by the place."""
    return Product(
        name,
        {
            profile: kind if most is None else kind._replace(most=most)
            for profile, most in variants.items()
            for kind in (_QUARTERS[profile[:2]],)
        },
        balanced,
    )


A100_40: Final = _eighths("A100 40GB", one="5", double="10", half="20", whole="40")
GB_80: Final = _eighths("A100 or H100 80GB", one="10", double="20", half="40", whole="80")
H100_94: Final = _eighths("H100 NVL", one="12", double="24", half="47", whole="94")
GB_96: Final = _eighths("H100 96GB", one="12", double="24", half="48", whole="96")
H200: Final = _eighths("H200", one="18", double="35", half="71", whole="141")
GH200_144: Final = _eighths("GH200 144GB", one="18", double="36", half="72", whole="144")
B200: Final = _eighths("B200", one="23", double="45", half="90", whole="180")
GB200: Final = _eighths("GB200", one="23 24", double="47", half="93 95", whole="186 189")
B300: Final = _eighths("B300", one="34", double="67", half="135", whole="269")
GB300: Final = _eighths("GB300", one="35", double="70", half="139", whole="278")
A30: Final = _quarters(
    "A30",
    {"1g.6gb": None, "1g.6gb+me": 1, "2g.12gb": None, "2g.12gb+me": 1, "4g.24gb": None},
    {"1g.6gb": 2, "2g.12gb": 1},
)
RTX_PRO_6000: Final = _quarters(
    "RTX PRO 6000",
    {
        "1g.24gb": None,
        "1g.24gb+gfx": None,
        "1g.24gb-me": None,
        "1g.24gb+me": 1,
        "1g.24gb+me.all": 1,
        "2g.48gb": None,
        "2g.48gb+gfx": None,
        "2g.48gb-me": None,
        "2g.48gb+me.all": 1,
        "4g.96gb": None,
        "4g.96gb+gfx": None,
    },
    {"1g.24gb": 2, "2g.48gb": 1},
)

DEVICES: Final[Mapping[str, Product]] = {
    **dict.fromkeys(("20b010de", "20b110de", "20f110de", "20f610de"), A100_40),
    **dict.fromkeys(
        [
            "20b210de",
            "20b510de",
            "20f310de",
            "20f510de",
            "233010de",
            "233110de",
            "232210de",
            "232410de",
        ],
        GB_80,
    ),
    **dict.fromkeys(("232110de", "233a10de"), H100_94),
    **dict.fromkeys(("234210de", "233d10de", "20b610de", "232910de"), GB_96),
    **dict.fromkeys(("233510de", "233b10de"), H200),
    "20b710de": A30,
    "234810de": GH200_144,
    "290110de": B200,
    "294110de": GB200,
    "318210de": B300,
    "31c210de": GB300,
    "2bb510de": RTX_PRO_6000,
}
"""By PCI id: the device, then the vendor."""
PROFILES: Final = frozenset(profile for product in DEVICES.values() for profile in product.kinds)
"""The profiles of all products."""


_MOST: Final = 8
"""Slices of a GPU. What says more of itself cannot be true, and its places are not tried."""
_BALANCED: Final[Mapping[int, Mapping[int, int]]] = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""By compute slices of the whole GPU: the number of instances of each size."""


def board_products(boards: Iterable[MigBoard]) -> dict[int, Product]:
    """Return what each GPU is, by index, as its driver says."""
    found: dict[int, Product] = {}
    for board in boards:
        if product := _board_product(board.kinds):
            found |= dict.fromkeys(board.gpus, product)
    return found


def _board_product(kinds: Iterable[MigKind]) -> Product | None:
    proper = {
        each.name: Kind(each.most, each.size, each.starts) for each in kinds if _is_true(each)
    }
    return Product("", proper, _balanced(proper)) if proper else None


def _is_true(kind: MigKind) -> bool:
    return (
        parse_profile(kind.name) is not None
        and 0 < kind.most <= _MOST
        and 0 < kind.size <= _MOST
        and 0 < len(kind.starts) <= _MOST
        and max(kind.starts) < _MOST
    )


def _balanced(kinds: Mapping[str, Kind]) -> dict[str, int]:
    """Return a mix of sizes that fills the GPU, of the plain profile of each; empty: none is known.

    Of two profiles with as many compute slices, the plain one is that of which there can be more.
    """
    plain: dict[int, str] = {}
    for name, kind in kinds.items():
        profile = parse_profile(name)
        if profile is None or not name.endswith("gb"):
            continue
        before = plain.get(profile.slices)
        if before is None or kinds[before].most < kind.most:
            plain[profile.slices] = name
    wanted = _BALANCED.get(max(plain, default=0), {})
    return (
        {plain[size]: count for size, count in wanted.items()}
        if wanted.keys() <= plain.keys()
        else {}
    )


def has_room(product: Product, profiles: tuple[str, ...]) -> bool:
    """Return whether instances of these profiles fit on the GPU together.

    Every profile must be one of the product's.
    """
    kinds = [product.kinds[name] for name in gpu_instances(profiles)]
    if any(kinds.count(kind) > kind.most for kind in kinds):
        return False
    return _can_place(sorted(kinds, key=lambda kind: -kind.size), taken=0)


@lru_cache(maxsize=1024)
def gpu_instances(profiles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the profiles of the GPU instances that these MIG devices need."""
    room: list[tuple[str, int]] = []
    parsed = [found for name in profiles if (found := parse_profile(name)) is not None]
    for profile in sorted(parsed, key=lambda each: -each.compute):
        for number, (name, left) in enumerate(room):
            if name == profile.gpu_instance and left >= profile.compute:
                room[number] = (name, left - profile.compute)
                break
        else:
            room.append((profile.gpu_instance, profile.slices - profile.compute))
    return tuple(name for name, _ in room)


def _can_place(kinds: list[Kind], *, taken: int) -> bool:
    """Return whether all fit; `taken` are the slices of memory in use, as bits."""
    if not kinds:
        return True
    first, *others = kinds
    bits = (1 << first.size) - 1
    return any(
        _can_place(others, taken=taken | bits << start)
        for start in first.starts
        if not taken & bits << start
    )
