"""The chart as `helm template` renders it: rights, settings, and the policy from values."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects
from libs.policy.render.rendered import EXPORTER, NODE_STATUS, SCRIPT_CONFIG_MAP
from services.driver.uninstall.objects import LEADERS
from services.driver.uninstall.operands import SCHEDULER, WRITERS
from services.signin.setup.contents import CA, KEYS, PEERS, SECRETS, SERVER, SERVICE
from tests.component.chart.conftest import Render, run
from tests.component.chart.rendered import (
    CHART,
    FIELDS,
    HOOK,
    VALUES,
    Object,
    environment,
    is_hook,
    of_kind,
    pods,
)

NAMESPACE = "gpu-operator"
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
OF_THE_CHART = {
    *("sluice-nats", "sluice-setup", "sluice-uninstall"),
    *("sluice-test", "sluice-test-people"),
}
ADMISSION = {"sluice-node-keys", "sluice-agents"}
RBAC = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
RIGHTS = {*RBAC, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def values(name: str) -> str:
    return str(Path(__file__).parent / "values" / f"{name}.yaml")


def test_rights_are_those_of_the_model_and_of_the_setup(render: Render) -> None:
    objects = [each for each in render() if each["kind"] in RIGHTS]
    ours = [each for each in objects if _name(each) not in OF_THE_CHART | ADMISSION]
    wanted = [each for each in installation_objects(NAMESPACE) if each["kind"] != "Namespace"]
    assert sorted(ours, key=str) == sorted(wanted, key=str)
    of_chart = [each for each in objects if _name(each) in OF_THE_CHART]
    assert sorted(each["kind"] for each in of_chart if not is_hook(each)) == ["ServiceAccount"]
    assert of_kind(of_chart, "Role")["sluice-setup"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": list(SECRETS),
            "verbs": ["get", "create", "patch"],
        },
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [CA],
            "verbs": ["get", "create", "patch"],
        },
    ]


def _name(obj: Object) -> str:
    """Return the name; that of an object of the cluster begins with the namespace."""
    return obj["metadata"]["name"].rpartition(":")[2]


def test_the_removal_is_a_hook_with_rights_of_its_own(render: Render) -> None:
    """Its names are those that the services, the setup and the model have."""
    objects = render()
    hooks = [each for each in objects if each["metadata"].get("annotations", {}).get(HOOK)]
    removing = [each for each in hooks if each["metadata"]["annotations"][HOOK] == "pre-delete"]
    assert sorted(each["kind"] for each in removing) == sorted((*RBAC, "Job"))
    rules = of_kind(removing, "Role")["sluice-uninstall"]["rules"]
    names = {
        tuple(rule["resources"]): set(rule["resourceNames"])
        for rule in rules
        if "resourceNames" in rule
    }
    deployments = of_kind(objects, "Deployment").keys()
    assert names == {
        ("deployments",): {SCHEDULER, *WRITERS},
        ("configmaps",): {SCRIPT_CONFIG_MAP, CA},
        ("secrets",): set(SECRETS),
        ("services", "servicemonitors"): {EXPORTER, NODE_STATUS},
        ("leases",): set(LEADERS),
    }
    assert {SCHEDULER, *WRITERS} <= deployments
    assert all("*" not in str(each.get("rules")) for each in removing)


def test_definitions_are_removed_only_if_asked_for(render: Render) -> None:
    assert not any("uninstall-kinds" in each["metadata"]["name"] for each in render())
    objects = render("--values", values("definitions_removed"))
    (role,) = (
        each for each in objects if each["kind"] == "ClusterRole" and _name(each).endswith("kinds")
    )
    (rule,) = role["rules"]
    assert sorted(rule["resourceNames"]) == sorted(crd_manifests())
    assert rule["verbs"] == ["get", "delete"]
    assert role["metadata"]["annotations"][HOOK] == "post-delete"


@pytest.mark.dear("Helm renders each file of values, for all tests of the chart")
def test_every_service_accepts_its_settings(render: Render) -> None:
    """Each program prints its settings from the variables of its pod."""
    objects = render("--values", values("services"), "--values", values("own_registry"))
    programs: list[list[str]] = []
    for _, pod in pods(list(of_kind(objects, "Deployment").values())):
        settings = {
            "SLUICE_NAMESPACE": NAMESPACE,
            **{name: text or "x" for name, text in environment(pod).items()},
        }
        program = pod["spec"]["containers"][0]["args"]
        done = subprocess.run(
            [sys.executable, "-m", *program, "--print-config"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed = {
            line.split("=", 1)[0] for line in done.stdout.splitlines() if "# environment" in line
        }
        assert printed == set(settings), program
        programs.append(program)
    assert sorted(programs) == [
        ["services.discovery", "cluster"],
        ["services.driver", "cluster"],
        ["services.scheduler", "scheduler"],
        ["services.signin", "server"],
        ["services.telemetry", "cluster"],
        ["services.validator", "cluster"],
    ]


def test_names_are_those_of_the_setup(render: Render) -> None:
    objects = render()
    assert set(of_kind(objects, "StatefulSet")) == {SERVICE}
    assert of_kind(objects, "StatefulSet")[SERVICE]["spec"]["serviceName"] == PEERS
    assert {SERVICE, PEERS} <= set(of_kind(objects, "Service"))
    mounted = {
        source["secret"]["name"]
        for _, pod in pods(objects)
        for volume in pod["spec"].get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
        if "secret" in source
    }
    assert mounted == {SERVER}
    keys = {
        name
        for name, pod in pods(objects)
        for volume in pod["spec"].get("volumes", [])
        if volume.get("secret", {}).get("secretName") == KEYS
    }
    assert keys == {"Deployment/sluice-sign-in"}


def test_leaders_and_sign_in_have_two_replicas_and_a_budget(render: Render) -> None:
    objects = render()
    replicas = {
        name: each["spec"]["replicas"] for name, each in of_kind(objects, "Deployment").items()
    }
    several = {"discovery-cluster", "driver-cluster", "scheduler", "sign-in"}
    assert {name for name, count in replicas.items() if count == 2} == {
        f"sluice-{name}" for name in several
    }
    assert set(of_kind(objects, "PodDisruptionBudget")) == {f"sluice-{name}" for name in several}
    three = render("--values", values("three_nats_servers"))
    assert SERVICE in of_kind(three, "PodDisruptionBudget")


def policy(objects: list[Object]) -> Object:
    return of_kind(objects, "ClusterPolicy")["cluster-policy"]["spec"]


def test_the_policy_has_the_values_of_nvidia(render: Render) -> None:
    """Every value that the policy has a field for is in it, and no other."""
    given = yaml.safe_load(Path(values("nvidia_defaults")).read_text())
    spec = policy(render("--values", values("nvidia_defaults")))
    assert spec["driver"]["upgradePolicy"]["podDeletion"] == {
        "force": False,
        "timeoutSeconds": 300,
        "deleteEmptyDir": False,
    }
    assert spec["driver"]["useNvidiaDriverCRD"] is False
    assert "gpuPodDeletion" not in spec["driver"]["upgradePolicy"]
    for section in ("toolkit", "gfd", "dcgm", "ccManager", "validator", "hostPaths"):
        assert spec[section] == given[section], section
    assert set(spec) <= set(json.loads(FIELDS.read_text()))


def test_values_without_effect_are_named(helm: Path) -> None:
    notes = run(
        helm,
        *("install", "sluice", str(CHART), "--dry-run=client", "--namespace", NAMESPACE),
        *("--values", values("nvidia_defaults")),
    )
    listed = notes.partition("These values have no effect here:\n")[2].partition("\n\n")[0]
    assert [line.strip() for line in listed.splitlines()] == [
        "driver.nvidiaDriverCRD",
        "extraObjects",
        "nfd.nodefeaturerules",
        "node-feature-discovery",
        "operator.image",
        "operator.imagePullPolicy",
        "operator.logging.develMode",
        "operator.logging.timeEncoding",
        "operator.repository",
        "operator.resources",
        "operator.upgradeCRD",
        "platform",
        "replicaCount",
    ]


@pytest.mark.dear("Helm renders each file of values")
def test_pods_are_ordinary_users_on_a_root_they_cannot_write(render: Render) -> None:
    """Agents are not among them: they are rendered by the driver service."""
    seen: list[str] = []
    for file in VALUES:
        for name, pod in pods(render("--values", str(file))):
            spec = pod["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True, name
            assert spec["securityContext"]["runAsUser"] > 0, name
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
            assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys(), name
            assert not any("hostPath" in volume for volume in spec.get("volumes", [])), name
            for container in spec["containers"]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }, name
            seen.append(name)
    assert len(set(seen)) == 11


def test_the_test_of_helm_reads_only(render: Render) -> None:
    hooks = [
        each for each in render() if each["metadata"].get("annotations", {}).get(HOOK) == "test"
    ]
    bindings = [each for each in hooks if each["kind"].endswith("RoleBinding")]
    assert all(
        [each["name"] for each in binding["subjects"]] == ["sluice-test"] for binding in bindings
    )
    roles = sorted(binding["roleRef"]["name"] for binding in bindings)
    assert roles == [f"{NAMESPACE}:sluice-test", "sluice-test"]
    rules = [rule for each in hooks for rule in each.get("rules", ())]
    other = [rule for rule in rules if rule["verbs"] != ["list"]]
    assert [(each["resources"], each["verbs"]) for each in other] == [
        (["serviceaccounts/token"], ["create"])
    ]
    assert {each["kind"] for each in hooks} == {*RBAC, "Job"}


def test_only_jobs_that_run_once_start_on_a_cordoned_node(render: Render) -> None:
    """A single node is cordoned while its driver is upgraded; what drains it must get rid of the
    other pods. Tolerations of the values stay.
    """
    for file in (values("defaults"), values("placement"), values("definitions_removed")):
        objects = render("--values", file)
        tolerating = {name for name, pod in pods(objects) if CORDON in _tolerations(pod)}
        assert tolerating == {f"Job/{name}" for name in of_kind(objects, "Job")}
        assert "Job/sluice-setup" in tolerating
        of_services = _tolerations(dict(pods(objects))["Deployment/sluice-scheduler"])
        of_setup = _tolerations(dict(pods(objects))["Job/sluice-setup"])
        assert of_setup == [*of_services, CORDON]


def _tolerations(pod: Object) -> list[Object]:
    return pod["spec"].get("tolerations", [])


def test_another_version_restarts_what_runs_its_image(render: Render, tmp_path: Path) -> None:
    """NATS goes on, with every connection."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(text.replace("ersion: 0.1.0", "ersion: 0.2.0"))
    earlier = dict(pods(render()))
    later = dict(pods(render("--set", "image.tag=later", chart=chart)))
    same = {name for name, pod in later.items() if pod == earlier[name]}
    assert same == {f"StatefulSet/{SERVICE}"}
