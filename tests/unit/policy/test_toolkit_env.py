"""Every variable of NVIDIA's toolkit is obeyed, refused, or named by a condition."""

from typing import Any

import pytest

from libs.policy.findings import Finding, Severity
from libs.policy.kinds.agents import NRI_GPUS, NRI_MANAGEMENT, RUNTIME_VARIABLES
from libs.policy.manifests import parse_manifest
from libs.policy.toolkit_env import VARIABLES
from libs.runtime.settings import load
from services.driver.node.agent import DriverAgentSettings
from tests.unit.policy.situations import Situation, cluster_policy
from tests.unit.policy.test_agents import driver_agent_env
from tests.unit.policy.test_page import PAGE, conditions

# The settings of the toolkit's container, and what the GPU Operator sets beside them.
DOCUMENTED = {
    *("RUNTIME", "RUNTIME_CONFIG", "CONTAINERD_CONFIG", "RUNTIME_DROP_IN_CONFIG"),
    *("RUNTIME_DROP_IN_CONFIG_HOST_PATH", "RUNTIME_SOCKET", "CONTAINERD_SOCKET"),
    *("RUNTIME_RESTART_MODE", "RUNTIME_ENABLE_CDI", "RUNTIME_CONFIG_SOURCE"),
    *("NVIDIA_RUNTIME_NAME", "CONTAINERD_RUNTIME_CLASS", "NVIDIA_RUNTIME_SET_AS_DEFAULT"),
    *("CONTAINERD_SET_AS_DEFAULT", "CDI_ENABLED", "CDI_OUTPUT_DIR", "CDI_KIND"),
    *("CREATE_DEVICE_NODES", "ENABLE_NRI_PLUGIN", "NRI_SOCKET", "NRI_PLUGIN_INDEX"),
    *("NRI_NAMESPACE", NRI_GPUS, NRI_MANAGEMENT, "TOOLKIT_PID_FILE", "ROOT"),
    *("NO_RUNTIME_CONFIG", "NO_DAEMON", "NVIDIA_CONTAINER_RUNTIME_MODE", "CRIO_CONFIG_MODE"),
    *("NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND", "NVIDIA_VISIBLE_DEVICES"),
}
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
RKE2_SOCKET = "/run/k3s/containerd/containerd.sock"
OBEYED: list[tuple[str, str, str, Any]] = [
    ("RUNTIME_CONFIG", K3S, "main", K3S),
    ("CONTAINERD_CONFIG", K3S, "main", K3S),
    ("CONTAINERD_CONFIG", "", "main", ""),
    ("RUNTIME_DROP_IN_CONFIG", "/etc/containerd/conf.d/9.toml", "drop_in", None),
    ("RUNTIME_SOCKET", RKE2_SOCKET, "socket", RKE2_SOCKET),
    ("CONTAINERD_SOCKET", RKE2_SOCKET, "socket", RKE2_SOCKET),
    ("NVIDIA_RUNTIME_NAME", "gpu", "handlers", ("gpu", "nvidia-cdi")),
    ("CONTAINERD_RUNTIME_CLASS", "gpu", "handlers", ("gpu", "nvidia-cdi")),
    ("RUNTIME_RESTART_MODE", "signal", "restart", "signal"),
    ("RUNTIME_RESTART_MODE", "systemd", "restart", "systemd"),
    ("RUNTIME_RESTART_MODE", "none", "restart", "none"),
    ("NO_RUNTIME_CONFIG", "true", "configure", False),
    ("NO_RUNTIME_CONFIG", "False", "configure", True),
    ("NO_RUNTIME_CONFIG", "1", "configure", False),
    (NRI_GPUS, "a,b", "gpus", ("a", "b")),
    (NRI_MANAGEMENT, "a, b", "management", ("a", "b")),
]
REFUSED = [
    *((name, "config.toml") for name in ("RUNTIME_CONFIG", "CONTAINERD_CONFIG")),
    ("RUNTIME_DROP_IN_CONFIG", "/etc/../x.toml"),
    *((name, "unix:///run/x.sock") for name in ("RUNTIME_SOCKET", "CONTAINERD_SOCKET")),
    *((name, "nvidia-legacy") for name in ("NVIDIA_RUNTIME_NAME", "CONTAINERD_RUNTIME_CLASS")),
    *(("RUNTIME_RESTART_MODE", value) for value in ("SIGHUP", "Signal", "reboot")),
    *(("NO_RUNTIME_CONFIG", value) for value in ("yes", "t")),
]


def spec(*pairs: tuple[str, str], nri: bool = True) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in pairs]
    return {"toolkit": {"env": env}, "cdi": {"nriPluginEnabled": nri}}


def findings(given: dict[str, Any]) -> list[Finding]:
    policy = cluster_policy(**given)
    return list(parse_manifest(policy["kind"], policy).findings)


def obeyed(given: dict[str, Any]) -> dict[str, Any]:
    """Return what the driver agent reads from the environment of its rendered pod."""
    environ = {**driver_agent_env(**given), "SLUICE_NODE": "n", "SLUICE_POD_UID": "u"}
    settings = load(DriverAgentSettings, environ=environ)
    runtime = settings.runtime
    return {
        **{name: getattr(runtime, name) for name in runtime.__struct_fields__},
        "socket": settings.runtime_socket or settings.containerd_socket,
        "gpus": settings.nri_gpu_namespaces,
        "management": settings.nri_management_namespaces,
    }


def test_the_table_has_every_documented_variable() -> None:
    assert VARIABLES.keys() == DOCUMENTED
    page = PAGE.read_text()
    assert [name for name in DOCUMENTED if f"\n| `{name}` | " not in page] == []
    working = {name for name, variable in VARIABLES.items() if not variable.because}
    assert (
        working == {name for name, *_ in OBEYED} == {*RUNTIME_VARIABLES, NRI_GPUS, NRI_MANAGEMENT}
    )
    assert {name for name, _ in REFUSED} == {name for name in working if VARIABLES[name].values}


@pytest.mark.parametrize(("name", "value", "setting", "expected"), OBEYED)
def test_the_driver_agent_obeys(name: str, value: str, setting: str, expected: Any) -> None:
    given = spec((name, value))
    assert findings(given) == []
    wanted = value if expected is None else expected
    changed = {key: each for key, each in obeyed(given).items() if each != obeyed(spec())[key]}
    assert changed in ({setting: wanted}, {})
    assert obeyed(given)[setting] == wanted


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_value_that_cannot_be_obeyed_is_an_error(name: str, value: str) -> None:
    (found,) = findings(spec((name, value)))
    assert (found.severity, found.field) == (Severity.ERROR, f"spec.toolkit.env[{name}]")
    assert found.remedy == f"write {VARIABLES[name].values}"


WITHOUT = [name for name, each in VARIABLES.items() if each.because]


@pytest.mark.parametrize("name", [*WITHOUT, "RUNTIME_RESTART"])
def test_a_variable_without_effect_changes_nothing_and_is_named(name: str) -> None:
    given = spec((name, "true"))
    (found,) = findings(given)
    assert (found.severity, found.field) == (Severity.NOTE, f"spec.toolkit.env[{name}]")
    assert obeyed(given) == obeyed(spec())
    assert Situation([cluster_policy(**given)]).rendering() == (
        Situation([cluster_policy(**spec())]).rendering()
    )


@pytest.mark.parametrize(
    ("wins", "loses"),
    [
        ("RUNTIME_CONFIG", "CONTAINERD_CONFIG"),
        ("RUNTIME_SOCKET", "CONTAINERD_SOCKET"),
        ("NVIDIA_RUNTIME_NAME", "CONTAINERD_RUNTIME_CLASS"),
    ],
)
def test_of_two_names_for_one_setting_one_counts_and_the_other_is_named(
    wins: str, loses: str
) -> None:
    both = spec((loses, "/a"), (wins, "/b"), nri=False)
    (found,) = findings(both)
    assert (found.severity, found.field) == (Severity.NOTE, f"spec.toolkit.env[{loses}]")
    assert f"because {wins} is set too" in found.problem
    assert obeyed(both) == obeyed(spec((wins, "/b"), nri=False))
    assert findings(spec((loses, "/a"), (wins, ""))) == []


@pytest.mark.parametrize("name", [NRI_GPUS, NRI_MANAGEMENT])
def test_namespaces_without_the_plugin_of_nri_are_named(name: str) -> None:
    (found,) = findings(spec((name, "a"), nri=False))
    assert (found.severity, found.field) == (Severity.NOTE, f"spec.toolkit.env[{name}]")
    assert "because cdi.nriPluginEnabled is off" in found.problem


def test_a_condition_names_all_variables_without_effect() -> None:
    policy = cluster_policy(**spec(*((name, "true") for name in WITHOUT)))
    message = conditions(policy)["Accepted"]
    assert [name for name in WITHOUT if name not in message] == []


def test_of_two_values_of_a_variable_the_last_counts() -> None:
    twice = spec(("RUNTIME_RESTART_MODE", "reboot"), ("RUNTIME_RESTART_MODE", "none"))
    assert findings(twice) == []
    assert obeyed(twice)["restart"] == "none"
