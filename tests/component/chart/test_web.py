"""The page of `sluice web` in the cluster: read rights alone, and not reached unless asked for."""

from typing import Any

from libs.ctl.cluster import PEOPLE
from libs.ctl.command import main
from tests.component.chart.conftest import Render
from tests.component.chart.rendered import Object, of_kind

NAME = "sluice-web"
ENABLED = ("--set", "web.enabled=true")
PUBLISHED = (*ENABLED, "--set", "web.hosts={gpus.example.org}")


def container(objects: list[Object]) -> dict[str, Any]:
    (found,) = of_kind(objects, "Deployment")[NAME]["spec"]["template"]["spec"]["containers"]
    return found


def arguments(objects: list[Object]) -> list[str]:
    program, *rest = container(objects)["args"]
    assert program == "libs.ctl"
    return rest


def test_it_is_not_there_unless_enabled(render: Render) -> None:
    assert not [each for each in render() if each["metadata"]["name"].endswith(NAME)]


def test_its_account_may_read_and_request_a_token_for_people(render: Render) -> None:
    objects = render(*ENABLED)
    rules = of_kind(objects, "ClusterRole")[f"gpu-operator:{NAME}"]["rules"]
    rules += of_kind(objects, "Role")[NAME]["rules"]
    token = rules.pop()
    assert (token["resources"], token["resourceNames"]) == (["serviceaccounts/token"], [PEOPLE])
    assert token["verbs"] == ["create"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    resources = {each for rule in rules for each in rule["resources"]}
    assert resources == {"nodes", "events", "rollouts", "devices", "daemonsets"}
    bindings = of_kind(objects, "RoleBinding")
    of_account = {
        each["roleRef"]["name"]
        for each in bindings.values()
        if any(subject["name"] == NAME for subject in each["subjects"])
    }
    assert of_account == {NAME}, "no port-forward, which people have"


def test_by_default_only_a_forwarded_port_reaches_it(render: Render) -> None:
    objects = render(*ENABLED)
    assert "--host=127.0.0.1" in arguments(objects)
    assert "readinessProbe" not in container(objects), "the kubelet cannot reach the loopback"
    policies = render(*ENABLED, "--set", "networkPolicies.enabled=true")
    assert of_kind(policies, "NetworkPolicy")[NAME]["spec"]["ingress"] == []


def test_published_it_answers_for_the_given_names(render: Render) -> None:
    settings = ("networkPolicies.enabled=true", "web.fromNamespaces={ingress}")
    objects = render(*PUBLISHED, *(part for each in settings for part in ("--set", each)))
    assert {"--host=0.0.0.0", "--allow-host=gpus.example.org"} <= set(arguments(objects))
    probe = container(objects)["readinessProbe"]["httpGet"]
    assert probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    (rule,) = of_kind(objects, "NetworkPolicy")[NAME]["spec"]["ingress"]
    labels = rule["from"][0]["namespaceSelector"]["matchLabels"]
    assert labels == {"kubernetes.io/metadata.name": "ingress"}


def test_the_command_accepts_its_arguments(render: Render) -> None:
    for objects in (render(*ENABLED), render(*PUBLISHED)):
        assert main([*arguments(objects), "--help"]) == 0


def test_the_pod_is_restricted_and_writes_only_to_memory(render: Render) -> None:
    objects = render(*ENABLED)
    pod = of_kind(objects, "Deployment")[NAME]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container(objects)["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["token"]["emptyDir"]["medium"] == "Memory"
