"""A policy refuses exactly the values that the device plugin could not read."""

import pytest

from libs.policy.findings import Severity
from libs.policy.kinds.agents import PLUGIN_VARIABLES
from libs.policy.manifests import parse_manifest
from libs.runtime.settings import SettingsError, load
from services.driver.plugin.settings import PluginSettings
from tests.unit.policy.situations import Situation, cluster_policy, env_of, pod_of

VALUES = {
    "PASS_DEVICE_SPECS": ("true", "False", "1", "", "yes", "t"),
    "GDRCOPY_ENABLED": ("true", "0", "on"),
    "GDS_ENABLED": ("TRUE", "2"),
    "MOFED_ENABLED": ("false", "enabled"),
    "DEVICE_LIST_STRATEGY": (
        *("envvar", "volume-mounts", "cdi-annotations, cdi-cri", "cdi-annotations,cdi-cri", ""),
        *("cdi", "envvar;cdi-cri", "envvar,", "ENVVAR"),
    ),
    "DEVICE_ID_STRATEGY": ("uuid", "index", "", "name", "UUID", "uuid,index"),
    "SHARED_DEVICES_ALLOCATION_POLICY": ("packed", "distributed", "spread"),
    "CDI_ANNOTATION_PREFIX": ("cdi.k8s.io/",),
    "DP_DISABLE_HEALTHCHECKS": ("all", "xids", "48, 79", "?"),
    "DP_ENABLE_HEALTHCHECKS": ("31", "?"),
}
CASES = [(name, value) for name, values in VALUES.items() for value in values]


def test_every_variable_of_the_device_plugin_has_values() -> None:
    assert sorted(VALUES) == sorted(PLUGIN_VARIABLES)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_value_is_refused_if_the_device_plugin_cannot_read_it(name: str, value: str) -> None:
    policy = cluster_policy(devicePlugin={"env": [{"name": name, "value": value}]})
    findings = parse_manifest(policy["kind"], policy).findings
    readable = cluster_policy(devicePlugin={"env": [{"name": "UNKNOWN", "value": ""}]})
    pod = pod_of(Situation([readable]).rendering(), "nvidia-device-plugin-daemonset")
    environ = {**env_of(pod["containers"][0]), "SLUICE_NODE": "n", "SLUICE_POD_UID": "u"}
    try:
        load(PluginSettings, environ={**environ, f"SLUICE_{name}": value})
    except SettingsError:
        (found,) = findings
        assert (found.severity, found.field) == (
            Severity.ERROR,
            f"spec.devicePlugin.env[{name}]",
        )
        assert found.remedy.startswith("write ")
    else:
        assert findings == ()


def test_of_two_values_of_a_variable_the_last_counts() -> None:
    env = [{"name": "PASS_DEVICE_SPECS", "value": value} for value in ("yes", "true")]
    policy = cluster_policy(devicePlugin={"env": env})
    assert parse_manifest(policy["kind"], policy).findings == ()
