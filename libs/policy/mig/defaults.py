"""The built-in file of MIG configurations, for every product in the table of products.

Of a board that its driver describes, the same names mean what that driver says (`board_entries`).
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from libs.policy.mig.config import ConfigEntry, DeviceId, MigConfigFile
from libs.policy.mig.products import DEVICES, Product
from libs.policy.mig.profiles import parse_profile

_BALANCED: Final = "all-balanced"
_ONE_PROFILE: Final = "all-"


@cache
def default_config() -> MigConfigFile:
    """Return the file that holds without a ConfigMap of the user's."""
    configs: dict[str, tuple[ConfigEntry, ...]] = {
        "all-disabled": (ConfigEntry(),),
        "all-enabled": (ConfigEntry(enabled=True),),
    }
    configs |= _one_profile_each()
    configs[_BALANCED] = tuple(
        ConfigEntry(filter=ids, enabled=True, profiles=dict(product.balanced))
        for product, ids in _products()
    )
    return MigConfigFile(configs=configs)


def config_name(profile: str) -> str:
    """Return the name of the configuration that has only this profile: `all-1g.10gb.me`."""
    return f"{_ONE_PROFILE}{profile.replace('+', '.')}"


def may_exist(name: str) -> bool:
    """Return whether this may be the name of a profile that some board has."""
    profile = name.removeprefix(_ONE_PROFILE).replace("gb.", "gb+", 1)
    return name.startswith(_ONE_PROFILE) and parse_profile(profile) is not None


def board_entries(name: str, products: Mapping[int, Product]) -> tuple[ConfigEntry, ...]:
    """Return what a built-in name means for these GPUs, by index."""
    found = ((index, _profiles(name, product)) for index, product in products.items())
    return tuple(
        ConfigEntry(devices=(index,), enabled=True, profiles=profiles)
        for index, profiles in found
        if profiles
    )


def _profiles(name: str, product: Product) -> Mapping[str, int]:
    if name == _BALANCED:
        return product.balanced
    return {each: kind.most for each, kind in product.kinds.items() if config_name(each) == name}


def _products() -> list[tuple[Product, tuple[DeviceId, ...]]]:
    ids: dict[str, tuple[DeviceId, ...]] = {}
    for device, product in DEVICES.items():
        ids[product.name] = (*ids.get(product.name, ()), DeviceId(device=device))
    products = {product.name: product for product in DEVICES.values()}
    return [(products[name], found) for name, found in ids.items()]


def _one_profile_each() -> dict[str, tuple[ConfigEntry, ...]]:
    """Return a configuration per profile; products that differ in its number have an entry each."""
    filters: dict[str, dict[int, tuple[DeviceId, ...]]] = {}
    for product, ids in _products():
        for profile, kind in product.kinds.items():
            by_count = filters.setdefault(profile, {})
            by_count[kind.most] = (*by_count.get(kind.most, ()), *ids)
    return {
        config_name(profile): tuple(
            ConfigEntry(
                filter=ids if len(by_count) > 1 else (), enabled=True, profiles={profile: count}
            )
            for count, ids in by_count.items()
        )
        for profile, by_count in filters.items()
    }
