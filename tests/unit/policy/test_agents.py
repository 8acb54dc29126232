"""The agents' DaemonSets: selectors, environment, and disabled operands."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from libs.bus.agent import AgentSettings
from libs.host.gpus.library import find_library
from libs.host.tree import Tree
from libs.policy.kinds.agents import (
    LEGACY_CLASS,
    NRI_GPUS,
    NRI_MANAGEMENT,
    PLUGIN_VARIABLES,
    RUNTIME_VARIABLES,
)
from libs.policy.kinds.common import EnvVar
from libs.policy.manifests import parse_manifest
from libs.policy.render.rendered import Operand, RenderResult
from libs.policy.wanted import INSTALL_DIR
from libs.runtime.settings import load
from services.driver.node.agent import DriverAgentSettings
from services.driver.plugin.settings import PluginSettings
from tests.unit.policy.situations import (
    SETTINGS,
    SITUATIONS,
    Situation,
    cluster_policy,
    container_of,
    env_of,
    pod_of,
    rendered_names,
)

APPS = (
    "nvidia-container-toolkit-daemonset",
    "nvidia-operator-validator",
    "nvidia-device-plugin-daemonset",
    "nvidia-dcgm-exporter",
    "gpu-feature-discovery",
)


NAMES = (
    "sluice-driver-agent",
    "sluice-validator-agent",
    "sluice-device-plugin",
    "sluice-telemetry-agent",
    "sluice-discovery-agent",
)


def apps_of(rendering: RenderResult) -> list[str]:
    """Return the agents that are rendered."""
    names = rendered_names(rendering)
    agents = zip(APPS, NAMES, strict=True)
    return [app for app, name in agents if ("DaemonSet", name) in names]


@pytest.mark.parametrize("name", SITUATIONS)
def test_agents_have_their_own_state_and_a_token_for_the_bus_alone(name: str) -> None:
    rendering = SITUATIONS[name].rendering()
    directories: list[str] = []
    for app in apps_of(rendering):
        pod = pod_of(rendering, app)
        assert pod["automountServiceAccountToken"] is False
        sources = [
            source
            for volume in pod["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
        ]
        token, ca = sources
        assert token["serviceAccountToken"]["audience"] == "sluice"
        assert ca["configMap"]["name"] == "sluice-nats-ca"
        (container,) = pod["containers"]
        directory = env_of(container)["SLUICE_STATE_DIR"]
        (mount,) = [item for item in container["volumeMounts"] if item["mountPath"] == directory]
        (volume,) = [item for item in pod["volumes"] if item["name"] == mount["name"]]
        assert "readOnly" not in mount
        assert volume["hostPath"]["type"] == "DirectoryOrCreate"
        directories.append(volume["hostPath"]["path"])
    assert len(set(directories)) == len(directories) >= 3


def test_agents_without_tls_have_no_ca() -> None:
    without = replace(SETTINGS, bus_ca="")
    rendering = Situation([cluster_policy()]).rendering(without)
    for app in apps_of(rendering):
        pod = pod_of(rendering, app)
        (container,) = pod["containers"]
        assert "SLUICE_NATS_CA_FILE" not in env_of(container)
        assert "configMap" not in json.dumps(
            [volume for volume in pod["volumes"] if "projected" in volume]
        )


def test_empty_paths_and_names_mean_the_defaults() -> None:
    policy = cluster_policy(
        operator={"runtimeClass": ""},
        toolkit={"installDir": ""},
        hostPaths={"rootFS": "", "driverInstallDir": ""},
    )
    assert Situation([policy]).rendering() == Situation([cluster_policy()]).rendering()


def test_every_agent_finds_the_driver_in_the_folder_of_the_policy(tmp_path: Path) -> None:
    library = tmp_path / "opt/driver/usr/lib64/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    policy = cluster_policy(hostPaths={"driverInstallDir": "/opt/driver/"})
    rendering = Situation([policy]).rendering()
    for app in APPS:
        (container,) = pod_of(rendering, app)["containers"]
        settings = load(AgentSettings, environ=with_node(env_of(container)))
        found = find_library(Tree(tmp_path), setting="", driver_root=settings.driver_root)
        assert found == str(library), app
    container = container_of(
        APPS[0],
    )
    settings = load(AgentSettings, environ=with_node(env_of(container)))
    assert settings.driver_root == INSTALL_DIR


def with_node(env: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container on a node."""
    given = {name: value for name, value in env.items() if value is not None}
    known = {f"SLUICE_{name.upper()}" for name in AgentSettings.__struct_fields__}
    return {name: given[name] for name in known & given.keys()} | {"SLUICE_NODE": "a"}


def test_the_toolkit_section_takes_precedence_for_the_driver_agent() -> None:
    limits = {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}
    container = container_of(
        APPS[0],
        toolkit={"resources": {"limits": {"cpu": 1}}},
        migManager={**limits, "imagePullPolicy": "Always"},
    )
    assert container["resources"] == {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert container["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    ("chosen", "rendered"),
    [
        ({}, {"limits": {"memory": "256Mi"}, "requests": {"cpu": "20m", "memory": "80Mi"}}),
        ({"requests": {"memory": "1Gi"}}, {"requests": {"cpu": "20m", "memory": "1Gi"}}),
        (
            {"limits": {"memory": "64Mi"}},
            {"limits": {"memory": "64Mi"}, "requests": {"cpu": "20m"}},
        ),
        (
            {"limits": {"cpu": 1}},
            {"limits": {"memory": "256Mi", "cpu": "1"}, "requests": {"memory": "80Mi"}},
        ),
    ],
)
def test_a_resource_of_the_policy_has_no_default(
    chosen: dict[str, dict[str, str | int]], rendered: dict[str, dict[str, str]]
) -> None:
    container = container_of(APPS[3], dcgmExporter={"resources": chosen})
    assert container["resources"] == rendered


def test_no_agent_has_a_default_limit_of_cpu() -> None:
    rendering = Situation([cluster_policy()]).rendering()
    for app in apps_of(rendering):
        (container,) = pod_of(rendering, app)["containers"]
        assert list(container["resources"]["limits"]) == ["memory"]
        assert list(container["resources"]["requests"]) == ["cpu", "memory"]


def test_the_telemetry_agent_follows_the_list_of_metrics_of_the_policy() -> None:
    policy = cluster_policy(dcgmExporter={"config": {"name": "our-metrics"}})
    pod = pod_of(Situation([policy]).rendering(), "nvidia-dcgm-exporter")
    (container,) = pod["containers"]
    (volume,) = [volume for volume in pod["volumes"] if "configMap" in volume]
    items = [{"key": "dcgm-metrics.csv", "path": "dcgm-metrics.csv"}]
    assert volume["configMap"] == {"name": "our-metrics", "items": items, "optional": True}
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
    assert "subPath" not in mount
    assert env_of(container)["SLUICE_METRIC_LIST"] == f"{mount['mountPath']}/dcgm-metrics.csv"
    assert "SLUICE_METRIC_LIST" not in env_of(container_of(APPS[3]))


def test_settings_of_the_telemetry_agent_reach_it_alone() -> None:
    settings = replace(
        SETTINGS, telemetry_env=(EnvVar(name="SLUICE_HOSTNAME_LABEL", value="hostname"),)
    )
    rendering = Situation([cluster_policy()]).rendering(settings)
    found = {
        rendered.name: env_of(container).get("SLUICE_HOSTNAME_LABEL")
        for rendered in rendering.objects
        if rendered.name in NAMES
        for container in rendered.object["spec"]["template"]["spec"]["containers"]
    }
    assert len(found) > 2
    assert {name for name, value in found.items() if value} == {"sluice-telemetry-agent"}
    assert found["sluice-telemetry-agent"] == "hostname"


@pytest.mark.parametrize(
    ("value", "most"), [("", 1), ("3", 3), ("20%", "20%"), ("0", 1), ("0%", 1)]
)
def test_max_unavailable_of_agent_daemon_sets(value: str, most: int | str) -> None:
    policy = cluster_policy(daemonsets={"rollingUpdate": {"maxUnavailable": value}})
    rendering = Situation([policy]).rendering()
    (agent,) = [item for item in rendering.objects if item.operand is Operand.DISCOVERY]
    strategy = agent.object["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}


def plugin_container(**section: Any) -> dict[str, Any]:
    return container_of(APPS[2], devicePlugin=section)


def test_the_device_plugin_runs_unless_the_policy_switches_it_off() -> None:
    container = plugin_container()
    assert container["args"] == ["services.driver", "plugin"]
    assert env_of(container)["SLUICE_DEVICE_PLUGINS"] == "/var/lib/kubelet/device-plugins"
    off = Situation([cluster_policy(devicePlugin={"enabled": False})]).rendering()
    assert ("DaemonSet", "sluice-device-plugin") not in rendered_names(off)


def test_the_device_plugin_gets_the_variables_that_it_reads() -> None:
    variables = [("DEVICE_LIST_STRATEGY", "envvar"), ("CONFIG_FILE", "/x"), ("SLUICE_NODE", "x")]
    env = env_of(
        plugin_container(env=[{"name": name, "value": value} for name, value in variables])
    )
    assert env["SLUICE_DEVICE_LIST_STRATEGY"] == "envvar"
    assert env["SLUICE_MIG_STRATEGY"] == "none"
    assert not {"DEVICE_LIST_STRATEGY", "SLUICE_CONFIG_FILE", "SLUICE_SLUICE_NODE"} & set(env)


def test_without_the_toolkit_the_policy_may_still_say_how_gpus_are_named() -> None:
    variable = {"name": "DEVICE_LIST_STRATEGY", "value": "volume-mounts"}
    plugin = {"env": [variable]}
    env = env_of(container_of(APPS[2], toolkit={"enabled": False}, devicePlugin=plugin))
    assert env["SLUICE_DEVICE_LIST_STRATEGY"] == "volume-mounts"


def test_variables_of_the_device_plugin_are_settings_that_it_has() -> None:
    settings = {name.lower() for name in PLUGIN_VARIABLES} | {"mig_strategy"}
    settings |= {"plugin_config", "plugin_config_dir"}
    assert settings <= set(PluginSettings.__struct_fields__)


@pytest.mark.parametrize(
    ("first", "second", "app"),
    [("toolkit", "migManager", APPS[0]), ("validator", "nodeStatusExporter", APPS[1])],
)
@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (("", "Always"), "Always"),
        # The GPU Operator's chart writes IfNotPresent into every section.
        (("IfNotPresent", "Always"), "Always"),
        (("IfNotPresent", "Never"), "Never"),
        (("Always", "IfNotPresent"), "Always"),
        (("Never", "Always"), "Never"),
        (("IfNotPresent", ""), "IfNotPresent"),
        (("", ""), "IfNotPresent"),
    ],
)
def test_a_pull_policy_of_either_section_of_an_agent_counts(
    first: str, second: str, app: str, policies: tuple[str, str], expected: str
) -> None:
    sections = {
        section: {"imagePullPolicy": policy}
        for section, policy in zip((first, second), policies, strict=True)
    }
    container = container_of(app, **sections)
    assert container["imagePullPolicy"] == expected


def driver_agent_env(**spec: Any) -> dict[str, str]:
    return env_of(container_of(APPS[0], **spec))


def test_the_driver_agent_gets_the_variables_of_the_toolkit_that_it_reads() -> None:
    given = [("CONTAINERD_CONFIG", "/a.toml"), ("ROOT", "/x"), ("SLUICE_NODE", "x")]
    toolkit = {"env": [{"name": name, "value": value} for name, value in given]}
    env = driver_agent_env(toolkit=toolkit, operator={"runtimeClass": "gpu"})
    assert (env["SLUICE_CONTAINERD_CONFIG"], env["SLUICE_RUNTIME_CLASS"]) == ("/a.toml", "gpu")
    assert not {"SLUICE_ROOT", "SLUICE_SLUICE_NODE"} & set(env)
    settings = {name.lower() for name in RUNTIME_VARIABLES} | {"runtime_class", "toolkit"}
    assert settings <= set(DriverAgentSettings.__struct_fields__)


def test_nvidias_legacy_runtime_is_refused() -> None:
    policy = cluster_policy(operator={"runtimeClass": LEGACY_CLASS})
    (error,) = parse_manifest(policy["kind"], policy).errors
    assert error.field == "spec.operator.runtimeClass"
    assert "names NVIDIA's legacy runtime" in error.problem


def test_the_device_plugin_has_the_configurations_of_the_policy() -> None:
    policy = cluster_policy(devicePlugin={"config": {"name": "ours", "default": "shared"}})
    pod = pod_of(Situation([policy]).rendering(), "nvidia-device-plugin-daemonset")
    (container,) = pod["containers"]
    (volume,) = [volume for volume in pod["volumes"] if "configMap" in volume]
    assert volume["configMap"] == {"name": "ours", "optional": True}
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == volume["name"]]
    env = env_of(container)
    assert env["SLUICE_PLUGIN_CONFIG_DIR"] == mount["mountPath"]
    assert env["SLUICE_PLUGIN_CONFIG"] == "shared"
    assert parse_manifest(policy["kind"], policy).findings == ()


def test_configurations_need_no_default_and_a_default_needs_configurations() -> None:
    env = env_of(plugin_container(config={"name": "ours"}))
    assert "SLUICE_PLUGIN_CONFIG_DIR" in env
    assert "SLUICE_PLUGIN_CONFIG" not in env
    assert not any("PLUGIN_CONFIG" in name for name in env_of(plugin_container()))
    unnamed = env_of(plugin_container(config={"default": "shared"}))
    assert not any("PLUGIN_CONFIG" in name for name in unnamed)


def nri_env(**spec: Any) -> dict[str, str]:
    return {name: value for name, value in driver_agent_env(**spec).items() if "NRI" in name}


def test_the_plugin_of_nri_is_off_unless_the_policy_switches_it_on() -> None:
    env = [{"name": NRI_GPUS, "value": "a,b"}, {"name": NRI_MANAGEMENT, "value": "c"}]
    assert nri_env(toolkit={"env": env}) == {}
    on = {"nriPluginEnabled": True}
    assert nri_env(cdi=on) == {"SLUICE_NRI": "true"}
    assert nri_env(cdi=on, toolkit={"env": env}) == {
        "SLUICE_NRI": "true",
        "SLUICE_NRI_GPU_NAMESPACES": "a,b",
        "SLUICE_NRI_MANAGEMENT_NAMESPACES": "c",
    }
