"""The built-in file of MIG configurations, for every product in the table of products."""

from functools import cache

from libs.policy.mig.config import ConfigEntry, DeviceId, MigConfigFile
from libs.policy.mig.products import DEVICES, Product


@cache
def default_config() -> MigConfigFile:
    """Return the file that holds without a ConfigMap of the user's."""
    configs: dict[str, tuple[ConfigEntry, ...]] = {
        "all-disabled": (ConfigEntry(),),
        "all-enabled": (ConfigEntry(enabled=True),),
    }
    configs |= _one_profile_each()
    configs["all-balanced"] = tuple(
        ConfigEntry(filter=ids, enabled=True, profiles=dict(product.balanced))
        for product, ids in _products()
    )
    return MigConfigFile(configs=configs)


def config_name(profile: str) -> str:
    """Return the name of the configuration that has only this profile: `all-1g.10gb.me`."""
    return f"all-{profile.replace('+', '.')}"


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
