"""The installation: permissions of every service, and none for agents."""

from libs.contracts.identities import COMPONENTS, Writer
from libs.policy.installation import RBAC_RULES, installation_objects, service_account_of

LOOK = "get list watch"
GPU_OPERATOR = "coordination.k8s.io/leases 53822513.nvidia.com"
POLICIES = {
    "nvidia.com/clusterpolicies": LOOK,
    "nvidia.com/nvidiadrivers": LOOK,
    "nvidia.com/gpuclusters": LOOK,
    "gpu.nvidia.com/gpuclusterpolicies": LOOK,
    "sluice.dev/rolloutstrategies": LOOK,
}
SELECTING = {
    "nvidia.com/clusterpolicies": LOOK,
    "nvidia.com/nvidiadrivers": LOOK,
    "gpu.nvidia.com/gpuclusterpolicies": LOOK,
}
TABLE: dict[str, dict[str, str]] = {
    "sluice-discovery-cluster": {
        **POLICIES,
        GPU_OPERATOR: LOOK,
        "nodes": f"{LOOK} patch",
        "here: coordination.k8s.io/leases": "get create patch",
    },
    "sluice-driver-cluster": {
        **POLICIES,
        "sluice.dev/rollouts": LOOK,
        GPU_OPERATOR: LOOK,
        "nodes": f"{LOOK} patch",
        "nvidia.com/clusterpolicies/status": "patch",
        "nvidia.com/nvidiadrivers/status": "patch",
        "gpu.nvidia.com/gpuclusterpolicies/status": "patch",
        "sluice.dev/rolloutstrategies/status": "patch",
        "node.k8s.io/runtimeclasses": f"{LOOK} create patch delete",
        "here: apps/daemonsets": f"{LOOK} create patch delete",
        "here: configmaps": f"{LOOK} create patch delete",
        "here: pods": LOOK,
        "events": "create patch",
        "here: coordination.k8s.io/leases": "get create patch",
    },
    "sluice-scheduler": {
        **POLICIES,
        "sluice.dev/rollouts": f"{LOOK} create patch",
        "sluice.dev/rollouts/status": "update",
        GPU_OPERATOR: LOOK,
        "nodes": f"{LOOK} patch",
        "events": "create patch",
        "pods": LOOK,
        "pods/eviction": "create",
        "here: pods": "delete",
        "here: apps/daemonsets": LOOK,
        "here: coordination.k8s.io/leases": "get create patch",
    },
    "sluice-validator-cluster": {"nodes": LOOK, **SELECTING},
    "sluice-telemetry-cluster": {"nodes": LOOK, **SELECTING},
}
"""By account: verbs, resources and object names; `here` means the operands' namespace."""


def granted() -> dict[str, dict[str, str]]:
    """Return the same table, read from the rendered objects."""
    objects = installation_objects("gpu-operator")
    rules = {
        (obj["kind"], obj["metadata"]["name"]): obj["rules"] for obj in objects if "rules" in obj
    }
    table: dict[str, dict[str, str]] = {}
    for binding in (obj for obj in objects if "roleRef" in obj):
        (subject,) = binding["subjects"]
        role = binding["roleRef"]
        here = "here: " if role["kind"] == "Role" else ""
        for rule in rules[role["kind"], role["name"]]:
            (group,) = rule["apiGroups"]
            for resource in rule["resources"]:
                key = f"{here}{group}/{resource}".replace(" /", " ").removeprefix("/")
                key = " ".join([key, *rule.get("resourceNames", [])])
                row = table.setdefault(subject["name"], {})
                verbs = [*row.get(key, "").split(), *rule["verbs"]]
                row[key] = " ".join(dict.fromkeys(verbs))
    return table


def test_the_permissions_of_every_service() -> None:
    assert granted() == TABLE


def test_agents_have_an_account_without_permissions() -> None:
    objects = installation_objects("gpu-operator")
    accounts = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "ServiceAccount"}
    assert set(accounts) == {
        "nvidia-driver",
        *(service_account_of(writer) for writer in Writer if writer is not Writer.CTL),
    }
    assert all(one["automountServiceAccountToken"] is False for one in accounts.values())
    assert not {service_account_of(writer) for writer in COMPONENTS} & set(granted())
    assert not set(RBAC_RULES) & set(COMPONENTS)


def test_no_service_reads_secrets_or_deletes_foreign_objects() -> None:
    for rights in granted().values():
        assert not [key for key in rights if "secrets" in key or "*" in key]
        for key, verbs in rights.items():
            assert "*" not in verbs
            if "delete" in verbs.split():
                assert key.startswith(("here: ", "node.k8s.io/runtime"))


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
