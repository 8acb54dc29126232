"""The DaemonSets of Sluice's agents, one for each kind of agent, on all nodes of the cluster.

The token of an agent is valid for the bus only, so that a node that is taken over can change no
object; only the plugin for claims has one for the API server, to read claims. Agents start on
every selected node, with or without driver, RuntimeClass or bus, because they report what is
missing there.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.policy.installation import service_account_of
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.kinds.common import EnvVar
from libs.policy.kinds.daemonsets import Daemonsets, UpdateStrategy
from libs.policy.normal_form import merge_env, user_annotations, user_labels, user_tolerations
from libs.policy.owners import DEPLOY_DRA, DEPLOY_PLUGIN, PAUSED
from libs.policy.render import agent_pods, agent_sections
from libs.policy.render.pod_fields import (
    JsonObject,
    downward_api_env,
    drop_empty,
    env_fields,
    host_volume,
    pod_tolerations,
    pull_secrets,
    resource_fields,
    volume_mount,
)
from libs.policy.render.rendered import (
    COMMON_LABELS,
    DEVICE_PLUGIN_APP,
    DRA_APP,
    EXPORTER,
    VALIDATOR,
    Operand,
    RenderedObject,
    RenderSettings,
    agent_selector,
)
from libs.policy.shapes import scaled_value
from libs.policy.wanted import DEFAULT_PRIORITY_CLASS, Operands, install_dir

AUDIENCE: Final = "sluice"
"""The audience of agents' tokens: the bus, never the API server."""

TOKEN_DIR: Final = "/var/run/secrets/sluice"
STATE_DIR: Final = "/var/lib/sluice"
"""The host directory of an agent's journal, which survives the pod and reboots."""

TOKEN_SECONDS: Final = 3600
"""How long a token lives, which the kubelet renews: a stolen one is of use for no longer."""
_CA_FILE: Final = "ca.crt"
_POD: Final = {
    "SLUICE_NODE": "spec.nodeName",
    "SLUICE_POD_UID": "metadata.uid",
    "SLUICE_NAMESPACE": "metadata.namespace",
}
DRA_DAEMON_SET: Final = "sluice-dra"
_ALL_AT_ONCE: Final = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
_PROBES_PORT: Final = 8081
_PROBES: Final = {
    f"{name}Probe": {
        "httpGet": {"path": path, "port": _PROBES_PORT},
        "periodSeconds": seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
    for name, path, seconds, failures in (
        ("startup", "/livez", 1, 120),
        ("liveness", "/livez", 10, 3),
        ("readiness", "/readyz", 5, 1),
    )
}


class AgentDaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: its names, node selector and pod."""

    component: Writer
    operand: Operand
    name: str
    app: str
    """The label of its pods, as in the GPU Operator: people and tools select by it."""
    selector: tuple[str, str]
    pod: Callable[[ClusterPolicy, Operands, RenderSettings], agent_pods.AgentPod]


AGENTS: Final = (
    AgentDaemonSet(
        component=Writer.DISCOVERY,
        operand=Operand.DISCOVERY,
        name="sluice-discovery-agent",
        app="gpu-feature-discovery",
        selector=("kubernetes.io/os", "linux"),
        pod=agent_pods.discovery,
    ),
    AgentDaemonSet(
        component=Writer.DRIVER,
        operand=Operand.TOOLKIT,
        name="sluice-driver-agent",
        app="nvidia-container-toolkit-daemonset",
        selector=("nvidia.com/gpu.present", "true"),
        pod=agent_pods.driver_agent,
    ),
    AgentDaemonSet(
        component=Writer.PLUGIN,
        operand=Operand.DEVICE_PLUGIN,
        name="sluice-device-plugin",
        app=DEVICE_PLUGIN_APP,
        selector=(DEPLOY_PLUGIN, "true"),
        pod=agent_pods.device_plugin,
    ),
    AgentDaemonSet(
        component=Writer.DRA,
        operand=Operand.DRA,
        name=DRA_DAEMON_SET,
        app=DRA_APP,
        selector=(DEPLOY_DRA, "true"),
        pod=agent_pods.dra,
    ),
    AgentDaemonSet(
        component=Writer.VALIDATOR,
        operand=Operand.VALIDATION,
        name="sluice-validator-agent",
        app=VALIDATOR,
        selector=("nvidia.com/gpu.deploy.operator-validator", "true"),
        pod=agent_pods.validator,
    ),
    AgentDaemonSet(
        component=Writer.TELEMETRY,
        operand=Operand.TELEMETRY,
        name="sluice-telemetry-agent",
        app=EXPORTER,
        selector=("nvidia.com/gpu.deploy.dcgm-exporter", "true"),
        pod=agent_pods.telemetry,
    ),
)


def is_deployed(component: Writer, operands: Operands) -> bool:
    """Return whether an agent runs on the nodes that it selects."""
    switches = {
        Writer.PLUGIN: operands.device_plugin,
        Writer.DRA: operands.dra or operands.claims_end,
        Writer.TELEMETRY: operands.telemetry,
    }
    return switches.get(component, True)


def render_agents(
    policy: ClusterPolicy, operands: Operands, settings: RenderSettings
) -> Iterator[RenderedObject]:
    """Render the agents that are enabled."""
    for agent in AGENTS:
        if is_deployed(agent.component, operands):
            pod = agent.pod(policy, operands, settings)
            pod = msgspec.structs.replace(
                pod,
                # Each agent reads GPUs by the driver's own library, which is below this folder.
                env={**pod.env, "SLUICE_DRIVER_ROOT": install_dir(policy)},
                startup_taints=operands.startup_taints,
            )
            daemon_set = _daemon_set(agent, pod, policy, settings)
            yield RenderedObject(operand=agent.operand, object=daemon_set)


def _daemon_set(
    agent: AgentDaemonSet,
    parts: agent_pods.AgentPod,
    policy: ClusterPolicy,
    settings: RenderSettings,
) -> JsonObject:
    common = policy.spec.daemonsets
    labels = {**user_labels(common.labels), **COMMON_LABELS, "app": agent.app}
    annotations = user_annotations(common.annotations)
    metadata = {
        "name": agent.name,
        "namespace": settings.namespace,
        "labels": labels,
        "annotations": annotations,
    }
    pod = {"labels": labels, "annotations": {**annotations, **user_annotations(parts.annotations)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": drop_empty(metadata),
        "spec": {
            "selector": {"matchLabels": agent_selector(agent.app)},
            "updateStrategy": _ALL_AT_ONCE if parts.ends else _strategy(common),
            "template": {"metadata": drop_empty(pod), "spec": _pod(agent, parts, common, settings)},
        },
    }


def _pod(
    agent: AgentDaemonSet, parts: agent_pods.AgentPod, common: Daemonsets, settings: RenderSettings
) -> JsonObject:
    secrets = [name for section in parts.sections for name in section.image_pull_secrets]
    tolerations = (
        [{"operator": "Exists"}]
        if parts.tolerates_all
        else pod_tolerations(user_tolerations(common.tolerations), parts.startup_taints)
    )
    return drop_empty(
        {
            "hostPID": parts.host_pid or None,
            "serviceAccountName": service_account_of(agent.component),
            "automountServiceAccountToken": parts.asks_api_server,
            "enableServiceLinks": False,
            **_placement(agent, parts),
            "tolerations": tolerations,
            "priorityClassName": common.priority_class_name or DEFAULT_PRIORITY_CLASS,
            "securityContext": common.pod_security_context,
            "imagePullSecrets": pull_secrets((*secrets, *settings.pull_secrets)),
            "containers": [_container(agent, parts, settings)],
            "volumes": [*(volume for volume, _ in parts.volumes), _state(agent), _token(settings)],
        }
    )


def _placement(agent: AgentDaemonSet, parts: agent_pods.AgentPod) -> JsonObject:
    """Return on which nodes the pod runs, and beside which pods it does not."""
    key, value = agent.selector
    affinity: JsonObject = {}
    if parts.ends:
        # Pods with claims end during upgrades too.
        selected = {"key": key, "operator": "In", "values": [value, PAUSED]}
        terms = [{"matchExpressions": [selected]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity["nodeAffinity"] = required
    if parts.never_beside:
        # Kubernetes also keeps pods of the other kind away, even while one of these still ends.
        apps = {"key": "app", "operator": "In", "values": list(parts.never_beside)}
        term = {
            "labelSelector": {"matchExpressions": [apps]},
            "topologyKey": "kubernetes.io/hostname",
        }
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"nodeSelector": None if parts.ends else {key: value}, "affinity": affinity or None}


def _container(
    agent: AgentDaemonSet, parts: agent_pods.AgentPod, settings: RenderSettings
) -> JsonObject:
    defaults = [EnvVar(name=name, value=value) for name, value in parts.env.items()]
    paths = {
        "SLUICE_HOST_ROOT": agent_pods.HOST,
        "SLUICE_STATE_DIR": STATE_DIR,
        "SLUICE_TOKEN_FILE": f"{TOKEN_DIR}/token",
    }
    if settings.bus_ca:
        paths["SLUICE_NATS_CA_FILE"] = f"{TOKEN_DIR}/{_CA_FILE}"
    merged = merge_env((*settings.env, *defaults), without=(*_POD, *paths))
    fixed = [EnvVar(name=name, value=value) for name, value in paths.items()]
    return drop_empty(
        {
            "name": f"sluice-{agent.component.value}",
            "image": parts.image,
            "imagePullPolicy": agent_sections.pull_policy(parts.sections, settings.pull_policy),
            "args": [f"services.{parts.service or agent.component.value}", *parts.args],
            "env": [*downward_api_env(_POD), *env_fields(fixed), *env_fields(merged)],
            "ports": list(parts.ports),
            "resources": resource_fields(agent_sections.resources(parts.sections, parts.resources)),
            **_PROBES,
            # Agents run before the device plugin, so no plugin grants them GPU device files. The
            # image's user is not root, and the host's folders belong to root.
            "securityContext": {
                "privileged": True,
                "readOnlyRootFilesystem": True,
                "runAsUser": 0,
                "runAsNonRoot": False,
            },
            # The host's /dev is mounted over the default path of this file.
            "terminationMessagePath": "/run/termination-log",
            "volumeMounts": [
                *(mount for _, mount in parts.volumes),
                volume_mount("state", STATE_DIR),
                volume_mount("bus-token", TOKEN_DIR, read_only=True),
            ],
        }
    )


def _state(agent: AgentDaemonSet) -> JsonObject:
    """Return the volume of the agent's own state directory: a journal belongs to one process."""
    return host_volume("state", f"{STATE_DIR}/{agent.component.value}", "DirectoryOrCreate")


def _token(settings: RenderSettings) -> JsonObject:
    """Return the volume of what an agent connects to the bus with."""
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    sources: list[JsonObject] = [{"serviceAccountToken": token}]
    if settings.bus_ca:
        items = [{"key": _CA_FILE, "path": _CA_FILE}]
        sources.append({"configMap": {"name": settings.bus_ca, "items": items}})
    return {"name": "bus-token", "projected": {"sources": sources}}


def _strategy(common: Daemonsets) -> JsonObject:
    if common.update_strategy is UpdateStrategy.ON_DELETE:
        return {"type": common.update_strategy.value}
    amount = common.rolling_update.max_unavailable or "1"
    # The API server refuses 0, with which no pod would ever be replaced.
    limit = max(1, int(amount)) if amount.isdigit() else amount if scaled_value(amount, 100) else 1
    return {"type": common.update_strategy.value, "rollingUpdate": {"maxUnavailable": limit}}
