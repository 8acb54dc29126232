"""The installation: permissions of every service, and none for agents."""

import pytest

from libs.contracts.identities import COMPONENTS, Writer
from libs.contracts.node import (
    DRIVER_LABEL,
    MIG_CONFIG_LABEL,
    PLUGIN_CONFIG_LABEL,
    SKIP_LABEL,
    STATE_LABEL,
)
from libs.policy.admission.nodes import DISCOVERY_LABELS, HEALTH_CONDITION
from libs.policy.admission.operands import BUS_AUDIENCE, OWN_SECRETS
from libs.policy.installation import RBAC_RULES, installation_objects, service_account_of
from libs.policy.render.agents import AUDIENCE
from services.discovery.cluster.device_health import GPU_HEALTHY
from services.discovery.cluster.gfd import GPU_LABELS
from services.discovery.cluster.label_values import FEATURES
from services.discovery.cluster.operand_labels import OPERAND_SETS
from services.signin.setup.contents import SECRETS

DELETABLE = ("node.k8s.io/runtime", "resource.k8s.io/deviceclasses", "gpu.nvidia.com/devices")


def granted_verbs() -> dict[str, dict[str, set[str]]]:
    """Return verbs by account and resource; the prefix `here` is the namespace of the operands."""
    objects = installation_objects("gpu-operator")
    rules = {
        (obj["kind"], obj["metadata"]["name"]): obj["rules"] for obj in objects if "rules" in obj
    }
    verbs_by_account: dict[str, dict[str, set[str]]] = {}
    for binding in (obj for obj in objects if "roleRef" in obj):
        (subject,), role = binding["subjects"], binding["roleRef"]
        scope = "here: " if role["kind"] == "Role" else ""
        verbs_by_resource = verbs_by_account.setdefault(subject["name"], {})
        for rule in rules[role["kind"], role["name"]]:
            for url in rule.get("nonResourceURLs", ()):
                verbs_by_resource.setdefault(url, set()).update(rule["verbs"])
            for resource in rule.get("resources", ()):
                key = f"{scope}{rule['apiGroups'][0]}/{resource}"
                verbs_by_resource.setdefault(key, set()).update(rule["verbs"])
    return verbs_by_account


def test_agents_have_an_account_without_permissions() -> None:
    objects = installation_objects("gpu-operator")
    accounts = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "ServiceAccount"}
    assert set(accounts) == {
        "sluice-driver-container",
        *map(service_account_of, Writer),
    }
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    agents = set(COMPONENTS) - {Writer.DRA}
    assert not {service_account_of(writer) for writer in agents} & set(granted_verbs())
    assert not set(RBAC_RULES) & agents


def test_one_agent_writes_slices_and_reads_claims_and_does_nothing_else() -> None:
    assert granted_verbs()["sluice-dra"] == {
        "resource.k8s.io/resourceslices": {"get", "list", "watch", "create", "patch"},
        "resource.k8s.io/resourceclaims": {"get"},
    }


def test_what_rights_cannot_say_is_limited_by_policies_that_deny() -> None:
    found = [
        obj
        for obj in installation_objects("gpus")
        if obj["kind"].startswith("ValidatingAdmissionPolicy")
    ]
    limited = {
        "gpus-sluice-dra": ["sluice-dra"],
        "gpus-sluice-nodes": ["sluice-discovery-cluster", "sluice-driver-cluster"],
        "gpus-sluice-operands": ["sluice-driver-cluster"],
    }
    assert [obj["metadata"]["name"] for obj in found] == [name for name in limited for _ in "ab"]
    for policy, binding in zip(found[::2], found[1::2], strict=True):
        name = policy["metadata"]["name"]
        assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}
        assert policy["spec"]["failurePolicy"] == "Fail"
        (condition,) = policy["spec"]["matchConditions"]
        users = [f"'system:serviceaccount:gpus:{each}'" for each in limited[name]]
        assert condition["expression"] == f"request.userInfo.username in [{', '.join(users)}]"


def test_the_limit_of_nodes_allows_what_discovery_writes() -> None:
    labels = {*GPU_LABELS, FEATURES, *(key for keys in OPERAND_SETS.values() for key in keys)}
    assert {key for key in labels if not key.startswith(DISCOVERY_LABELS)} == set()
    assert HEALTH_CONDITION == GPU_HEALTHY
    others = (STATE_LABEL, SKIP_LABEL, MIG_CONFIG_LABEL, PLUGIN_CONFIG_LABEL, DRIVER_LABEL)
    assert [key for key in others if key.startswith(DISCOVERY_LABELS)] == []


def test_the_limit_of_operands_knows_the_audience_and_the_secrets_of_the_bus() -> None:
    assert BUS_AUDIENCE == AUDIENCE
    assert [name for name in SECRETS if not name.startswith(OWN_SECRETS)] == []


def test_no_service_reads_secrets_or_deletes_foreign_objects() -> None:
    for rights in granted_verbs().values():
        assert not [key for key in rights if "secrets" in key or "*" in key]
        for key, verbs in rights.items():
            assert "*" not in verbs
            if "delete" in verbs:
                assert key.startswith(("here: ", *DELETABLE))


def rules_for(account: str, resource: str, verb: str) -> list[list[str]]:
    """Return the names that each rule for this verb is limited to; none: it has no limit."""
    return [
        rule.get("resourceNames", [])
        for obj in installation_objects("gpu-operator")
        if obj["metadata"]["name"].endswith(account) and "rules" in obj
        for rule in obj["rules"]
        if resource in rule.get("resources", ()) and verb in rule["verbs"]
    ]


@pytest.mark.parametrize(
    "account", ["sluice-scheduler", "sluice-driver-cluster", "sluice-discovery-cluster"]
)
def test_a_service_changes_only_its_own_lease(account: str) -> None:
    assert rules_for(account, "leases", "patch") == [[account]]
    assert rules_for(account, "leases", "get") == [["53822513.nvidia.com"], [account]]


def test_sign_in_reads_what_verifies_tokens_and_nothing_else() -> None:
    assert granted_verbs()["sluice-sign-in"] == {
        "here: /pods": {"list", "watch"},
        "here: /serviceaccounts": {"list", "watch"},
        "/nodes": {"list", "watch"},
        "authentication.k8s.io/tokenreviews": {"create"},
        "/.well-known/openid-configuration": {"get"},
        "/openid/v1/jwks": {"get"},
    }


def test_people_may_sign_in_through_the_api_server_once_they_are_bound_to_a_role() -> None:
    objects = installation_objects("gpus")
    (role,) = (obj for obj in objects if obj["metadata"]["name"] == "sluice-people")
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "gpus")
    pods = ["sluice-nats-0", "sluice-nats-1", "sluice-nats-2"]
    assert [
        (rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in role["rules"]
    ] == [
        (["serviceaccounts/token"], ["sluice-ctl"], ["create"]),
        (["configmaps"], ["sluice-nats-ca"], ["get"]),
        (["pods"], pods, ["get"]),
        (["pods/portforward"], pods, ["get", "create"]),
    ]
    assert not [obj for obj in objects if obj.get("roleRef", {}).get("name") == "sluice-people"]
    assert "sluice-ctl" not in granted_verbs()


def test_config_maps_and_runtime_classes_are_limited_by_name() -> None:
    account, script = "sluice-driver-cluster", ["sluice-driver-startup-probe"]
    assert rules_for(account, "configmaps", "delete") == []
    assert rules_for(account, "configmaps", "patch") == [script]
    assert rules_for(account, "configmaps", "create") == [script]
    classes = ["nvidia", "nvidia-cdi", "nvidia-legacy"]
    assert rules_for(account, "runtimeclasses", "delete") == [classes]
    device_classes = ["gpu.nvidia.com", "mig.nvidia.com"]
    assert rules_for(account, "deviceclasses", "delete") == [device_classes]


@pytest.mark.parametrize("resource", ["services", "servicemonitors"])
def test_two_services_and_two_monitors_of_the_namespace_may_be_changed(resource: str) -> None:
    account = "sluice-driver-cluster"
    for verb in ("create", "patch", "delete"):
        assert rules_for(account, resource, verb) == [
            ["nvidia-dcgm-exporter", "nvidia-node-status-exporter"]
        ]
    for verb in ("get", "list", "watch"):
        assert rules_for(account, resource, verb) == [[]]
    assert not {f"/{resource}", f"monitoring.coreos.com/{resource}"} & set(granted_verbs()[account])


def test_the_scheduler_reads_config_maps_of_the_namespace_and_changes_none() -> None:
    found = granted_verbs()["sluice-scheduler"]
    assert found["here: /configmaps"] == {"get", "list", "watch"}
    assert "/configmaps" not in found


def test_the_namespace_allows_privileged_pods() -> None:
    namespace = installation_objects("gpus")[0]
    assert namespace["metadata"]["name"] == "gpus"
    for mode in ("enforce", "audit", "warn"):
        label = f"pod-security.kubernetes.io/{mode}"
        assert namespace["metadata"]["labels"][label] == "privileged"


def test_two_installations_have_distinct_objects() -> None:
    def keys(namespace: str) -> set[tuple[str, str, str]]:
        return {
            (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            for obj in installation_objects(namespace)
        }

    assert not keys("a") & keys("b")
