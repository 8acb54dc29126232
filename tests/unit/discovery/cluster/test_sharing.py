"""Labels of GPUs that a node shares by time-slicing, as its device plugin is configured."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Facts, Mig
from libs.contracts.node import PLUGIN_CONFIG_LABEL
from libs.kube.views import Metadata
from libs.policy.kinds.gpu_cluster_policy import GpuClusterPolicy
from libs.policy.kinds.mig import MigStrategy
from libs.policy.plugin_config.texts import MAX_TEXT
from services.discovery.cluster.decide import LabelPolicy, ReportedFacts
from services.discovery.cluster.sharing import (
    ConfigMap,
    PluginConfigs,
    plugin_configs,
)
from tests.unit.discovery.cluster.builders import GPU, labels_after, node, ours, policy

MODEL = "NVIDIA-H100-80GB-HBM3"
UNSHARED = (MODEL, "1", "1", "none")
FOUR = (f"{MODEL}-SHARED", "1", "4", "time-slicing")
REPORTED = ReportedFacts(facts=Facts(gpus=(GPU,)))
NAME = "plugin-configs"


def slicing(*resources: str, more: str = "") -> str:
    """Return a file that shares these resources, such as `gpu: 4`."""
    named = (each.split(": ") for each in resources)
    listed = ", ".join(f"{{name: nvidia.com/{name}, replicas: {count}}}" for name, count in named)
    return f"version: v1\nsharing: {{timeSlicing: {{{more}resources: [{listed}]}}}}\n"


FILES = {
    "four": slicing("gpu: 4"),
    "two": slicing("gpu: 2"),
    "renamed": slicing("gpu: 4", more="renameByDefault: true, "),
    "instances": slicing("mig-1g.10gb: 3"),
    "whole": "version: v1\n",
    "broken": "version: v2\n",
    "mps": "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n",
    "long": slicing("gpu: 4") + "#" * MAX_TEXT,
}


def config_map(name: str = NAME, files: dict[str, str] = FILES) -> ConfigMap:
    return ConfigMap(metadata=Metadata(name=name, namespace="gpu-operator"), data=files)


def configs(default: str = "", *maps: ConfigMap) -> PluginConfigs | None:
    section = {"config": {"name": NAME, "default": default}}
    return plugin_configs(policy(devicePlugin=section), maps or (config_map("other"), config_map()))


def base(labels: dict[str, str], resource: str = "gpu") -> tuple[str, ...]:
    names = ("product", "count", "replicas", "sharing-strategy")
    return tuple(labels[f"nvidia.com/{resource}.{name}"] for name in names)


def labelled(
    found: PluginConfigs | None, chosen: str = "", before: dict[str, str] | None = None
) -> dict[str, str]:
    """Return the labels of a node that chooses a configuration."""
    labels = {**(before or {}), **({PLUGIN_CONFIG_LABEL: chosen} if chosen else {})}
    return labels_after(ours(labels), REPORTED, LabelPolicy(plugin_configs=found))


@pytest.mark.parametrize(
    ("default", "chosen", "shown"),
    [
        ("", "", UNSHARED),
        ("four", "", FOUR),
        ("", "four", FOUR),
        ("two", "four", FOUR),
        ("four", "whole", UNSHARED),
        ("four", "renamed", (MODEL, "1", "4", "time-slicing")),
        ("four", "instances", UNSHARED),
    ],
)
def test_the_configuration_of_a_node_decides(
    default: str, chosen: str, shown: tuple[str, ...]
) -> None:
    assert base(labelled(configs(default), chosen)) == shown


@pytest.mark.parametrize("unusable", ["absent", "broken", "mps", "long"])
def test_what_cannot_be_used_changes_no_label(unusable: str) -> None:
    assert base(labelled(configs(), unusable)) == UNSHARED
    for name in ("four", "renamed", "whole"):
        before = labelled(configs(), name)
        after = labelled(configs(), unusable, before)
        assert base(after) == base(before)


def test_a_config_map_that_is_gone_changes_no_label() -> None:
    before = labelled(configs(), "four")
    assert base(labelled(configs("", config_map("other")), "two", before)) == FOUR
    assert base(labelled(configs(), "two", before)) == (f"{MODEL}-SHARED", "1", "2", "time-slicing")


def test_without_a_config_map_in_the_policy_the_label_has_no_effect() -> None:
    assert plugin_configs(policy(), [config_map()]) is None
    assert plugin_configs(GpuClusterPolicy(), [config_map()]) is None
    assert plugin_configs(None, [config_map()]) is None
    before = labelled(configs(), "four")
    assert base(labelled(None, "four", before)) == UNSHARED


def test_another_device_plugin_has_the_same_configurations_and_claims_have_none() -> None:
    section = {"enabled": False, "config": {"name": NAME, "default": "four"}}
    other = plugin_configs(policy(devicePlugin=section), [config_map()])
    assert base(labelled(other)) == FOUR
    claims = policy(devicePlugin=section, dra={"enabled": True})
    assert plugin_configs(claims, [config_map()]) is None


def test_shared_mig_devices_of_a_profile_say_so() -> None:
    small = Mig(uuid="MIG-1", profile="1g.10gb", memory_mib=9984, gpu_slices=1)
    divided = replace(GPU, mig_mode=True, migs=(small,))
    reported = ReportedFacts(facts=Facts(gpus=(divided,)))
    label_policy = LabelPolicy(mig_strategy=MigStrategy.MIXED, plugin_configs=configs("instances"))
    labels = labels_after(node(), reported, label_policy)
    product = f"{MODEL}-MIG-1g.10gb-SHARED"
    assert base(labels, "mig-1g.10gb") == (product, "1", "3", "time-slicing")
    assert base(labels) == (MODEL, "1", "0", "none")
    kept = LabelPolicy(mig_strategy=MigStrategy.MIXED, plugin_configs=configs("absent"))
    assert labels_after(ours(labels), reported, kept) == labels


def test_only_short_texts_of_config_maps_are_kept() -> None:
    assert set(config_map().data or {}) == set(FILES) - {"long"}
