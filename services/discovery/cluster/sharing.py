"""How the devices of a node are shared, by the configuration of its device plugin. Pure.

A plugin whose configuration cannot be used keeps the one it had, and so do the labels of its node.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from libs.contracts.node import PLUGIN_CONFIG_LABEL
from libs.kube import views
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.plugin_config.config import RefusedConfig, TimeSlicing
from libs.policy.plugin_config.file import load_config
from libs.policy.plugin_config.texts import MAX_CONFIGS, readable_texts

_STRATEGY: Final = ".sharing-strategy"
_REPLICAS: Final = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)


class SharingStrategy(StrEnum):
    """How several pods share one device."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


class SharedResource(msgspec.Struct, frozen=True, kw_only=True):
    """How one resource is shared."""

    replicas: int = 1
    renamed: bool = False
    """The shared resource has a name of its own."""


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How the device plugin is told to share devices."""

    strategy: SharingStrategy = SharingStrategy.NONE
    resources: Mapping[str, SharedResource] = {}
    """By name, such as `nvidia.com/gpu`."""


UNSHARED: Final = Sharing()
SHARED_PRODUCT: Final = "-SHARED"
"""The end of the product's label of a shared resource that kept its name."""


class ConfigMap(views.Object, frozen=True, kw_only=True):
    """A ConfigMap with the texts that may be configurations."""

    data: dict[str, str] | None = None

    def __post_init__(self) -> None:
        views.settle(self, data=readable_texts(self.data or {}))


class PluginConfigs(msgspec.Struct, frozen=True, kw_only=True):
    """The configurations of the device plugin, of which a node chooses one by its label."""

    default: str = ""
    """The configuration of nodes without the label; empty: they share no device."""
    sharing: Mapping[str, Sharing] = {}
    """By name of the configuration; one that cannot be used is missing: its nodes keep theirs."""

    def of_node(self, labels: Mapping[str, str]) -> Sharing:
        name = labels.get(PLUGIN_CONFIG_LABEL) or self.default
        if not name:
            return UNSHARED
        found = self.sharing.get(name)
        return _labelled(labels) if found is None else found


def plugin_configs(
    policy: ClusterPolicy | GpuClusterPolicy | None, config_maps: Iterable[ConfigMap]
) -> PluginConfigs | None:
    """Return the configurations that a policy names; None: nodes have no choice."""
    if not isinstance(policy, ClusterPolicy) or policy.spec.dra.enabled:
        return None
    chosen = policy.spec.device_plugin.config
    if not chosen.name:
        return None
    texts = next((each.data for each in config_maps if each.metadata.name == chosen.name), None)
    loaded = {name: _sharing(text) for name, text in (texts or {}).items()}
    usable = {name: sharing for name, sharing in loaded.items() if sharing is not None}
    return PluginConfigs(default=chosen.default, sharing=usable)


@lru_cache(maxsize=MAX_CONFIGS)
def _sharing(text: str) -> Sharing | None:
    try:
        slicing = load_config(text).config.time_slicing
    except RefusedConfig:
        return None
    return _of_slicing(slicing) if slicing.replicas else UNSHARED


def _of_slicing(slicing: TimeSlicing) -> Sharing:
    return Sharing(
        strategy=SharingStrategy.TIME_SLICING,
        resources={
            name: SharedResource(replicas=replicas, renamed=slicing.rename)
            for name, replicas in slicing.replicas.items()
        },
    )


def _labelled(labels: Mapping[str, str]) -> Sharing:
    """Return the sharing that a node's labels show."""
    shared: dict[str, SharedResource] = {}
    for key, strategy in labels.items():
        resource = key.removesuffix(_STRATEGY)
        replicas = labels.get(f"{resource}.replicas", "")
        is_shared = resource != key and strategy == SharingStrategy.TIME_SLICING
        if is_shared and _REPLICAS.fullmatch(replicas):
            product = labels.get(f"{resource}.product", "")
            renamed = not product.endswith(SHARED_PRODUCT)
            shared[resource] = SharedResource(replicas=int(replicas), renamed=renamed)
    return Sharing(strategy=SharingStrategy.TIME_SLICING, resources=shared) if shared else UNSHARED
