"""Configurations of the device plugin that cannot be used, for the status of the policy. Pure."""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final

from libs.contracts.node import PLUGIN_CONFIG_LABEL
from libs.contracts.words import excerpt, first_few, first_sentences
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.plugin_config.config import RefusedConfig
from libs.policy.plugin_config.file import load_config
from libs.policy.plugin_config.texts import MAX_CONFIGS
from libs.policy.pool import ClusterWidePolicy
from libs.policy.status import StatusCondition
from libs.policy.validation import PRESENT_LABEL
from services.driver.cluster.resources import Node

PLUGIN_CONFIG: Final = "DevicePluginConfig"
_LISTED: Final = 5
"""How many problems, and how many nodes of one, a message names."""


def plugin_config_condition(
    policy: ClusterWidePolicy | None,
    *,
    namespace: str,
    config_maps: Mapping[str, Collection[str]],
    texts: Mapping[str, Mapping[str, str]],
    nodes: Collection[Node],
) -> StatusCondition | None:
    """Return the condition that names what cannot be used; None: all can, or none is wanted.

    `config_maps` has the keys of each ConfigMap, and `texts` those values that are short.
    """
    if not isinstance(policy, ClusterPolicy):
        return None
    section = policy.spec.device_plugin
    name = section.config.name
    if not (section.enabled and name):
        return None
    where = f"ConfigMap {namespace}/{name}"
    if name not in config_maps:
        problems = [f"{where} does not exist, which spec.devicePlugin.config.name names: create it"]
    else:
        keys = config_maps[name]
        problems = [
            *_without_key(where, keys, section.config.default, nodes),
            *_refused(where, texts.get(name, {})),
        ]
    if not problems:
        return None
    effect = (
        "a device plugin whose configuration is one of these keeps the one it had, and offers no"
        " GPUs if it had none"
    )
    message = "; ".join((first_sentences(problems, _LISTED), effect))
    return StatusCondition(type=PLUGIN_CONFIG, status=True, reason="NotUsable", message=message)


def _without_key(
    where: str, keys: Collection[str], default: str, nodes: Collection[Node]
) -> Iterator[str]:
    """Yield the names that the policy and the labels of nodes give without a key."""
    if default and default not in keys:
        yield (
            f"{where} has no key {excerpt(default)}, which spec.devicePlugin.config.default"
            " names: add it, or name another"
        )
    named: dict[str, list[str]] = {}
    for node in nodes:
        labels = node.metadata.labels
        value = labels.get(PLUGIN_CONFIG_LABEL, "")
        if value and value not in keys and labels.get(PRESENT_LABEL) == "true":
            named.setdefault(value, []).append(node.metadata.name)
    for value, names in sorted(named.items()):
        yield (
            f"{where} has no key {excerpt(value)}, which the label {PLUGIN_CONFIG_LABEL} of"
            f" {first_few(sorted(names), _LISTED)} names: add it, or name another"
        )


def _refused(where: str, texts: Mapping[str, str]) -> Iterator[str]:
    for key, text in sorted(texts.items()):
        if reason := _why_refused(text):
            yield f"key {excerpt(key)} of {where}: {excerpt(reason, 300)}"


@lru_cache(maxsize=MAX_CONFIGS)
def _why_refused(text: str) -> str:
    try:
        load_config(text)
    except RefusedConfig as error:
        return str(error)
    return ""
