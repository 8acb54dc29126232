"""The DaemonSets of our agents: one each for the whole cluster, as its policy words them.

Agents have no credentials of Kubernetes: what they show the bus is a token for our audience alone.
They start on any node that they are for, with or without driver, RuntimeClass or bus.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.policy.int_or_string import scaled_value
from libs.policy.kinds.cluster_policy import ClusterPolicy, Daemonsets, UpdateStrategy
from libs.policy.kinds.common import EnvVar, ResourceRequirements
from libs.policy.normalize import (
    DEFAULT_PRIORITY_CLASS,
    merge_env,
    unique,
    user_annotations,
    user_labels,
)
from libs.policy.render import agent_pods
from libs.policy.render.pod_fields import (
    COMMON_LABELS,
    JsonObject,
    downward_api_env,
    drop_empty,
    env_fields,
    host_volume,
    name_references,
    pod_tolerations,
    resource_fields,
    volume_mount,
)
from libs.policy.render.rendered import Operand, RenderedObject
from libs.policy.render.settings import RenderSettings
from libs.policy.service_accounts import service_account_of
from libs.policy.wanted import Operands

AUDIENCE: Final = "sluice"
"""Whom an agent's token is for: the bus, never the API server."""

TOKEN_DIR: Final = "/var/run/secrets/sluice"
STATE_DIR: Final = "/var/lib/sluice"
"""Where an agent keeps its journal, on the host: it outlives the pod, and a reboot."""

_TOKEN_SECONDS: Final = 3600
_POD: Final = {
    "SLUICE_NODE": "spec.nodeName",
    "SLUICE_POD_UID": "metadata.uid",
    "SLUICE_NAMESPACE": "metadata.namespace",
}


class AgentDaemonSet(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: what people select it by, where it runs, and what it does there."""

    component: Writer
    operand: Operand
    app: str
    selector: tuple[str, str]
    pod: Callable[[ClusterPolicy, Operands, RenderSettings], agent_pods.AgentPod]


AGENTS: Final = (
    AgentDaemonSet(
        component=Writer.DISCOVERY,
        operand=Operand.DISCOVERY,
        app="gpu-feature-discovery",
        selector=("kubernetes.io/os", "linux"),
        pod=agent_pods.discovery,
    ),
    AgentDaemonSet(
        component=Writer.DRIVER,
        operand=Operand.TOOLKIT,
        app="nvidia-container-toolkit-daemonset",
        selector=("nvidia.com/gpu.present", "true"),
        pod=agent_pods.driver_agent,
    ),
    AgentDaemonSet(
        component=Writer.PLUGIN,
        operand=Operand.DEVICE_PLUGIN,
        app="nvidia-device-plugin-daemonset",
        selector=("nvidia.com/gpu.deploy.device-plugin", "true"),
        pod=agent_pods.device_plugin,
    ),
    AgentDaemonSet(
        component=Writer.VALIDATOR,
        operand=Operand.VALIDATION,
        app="nvidia-operator-validator",
        selector=("nvidia.com/gpu.deploy.operator-validator", "true"),
        pod=agent_pods.validator,
    ),
    AgentDaemonSet(
        component=Writer.TELEMETRY,
        operand=Operand.TELEMETRY,
        app="nvidia-dcgm-exporter",
        selector=("nvidia.com/gpu.deploy.dcgm-exporter", "true"),
        pod=agent_pods.telemetry,
    ),
)


def render_agents(
    policy: ClusterPolicy, operands: Operands, settings: RenderSettings
) -> Iterator[RenderedObject]:
    """Those that are switched on."""
    on = {Writer.PLUGIN: operands.device_plugin, Writer.TELEMETRY: operands.telemetry}
    for agent in AGENTS:
        if on.get(agent.component, True):
            made = _daemon_set(agent, policy, operands, settings)
            yield RenderedObject(operand=agent.operand, object=made)


def _daemon_set(
    agent: AgentDaemonSet, policy: ClusterPolicy, operands: Operands, settings: RenderSettings
) -> JsonObject:
    common, does = policy.spec.daemonsets, agent.pod(policy, operands, settings)
    named = {**user_labels(common.labels), **COMMON_LABELS, "app": agent.app}
    said = user_annotations(common.annotations)
    metadata = {
        "name": agent.app,
        "namespace": settings.namespace,
        "labels": named,
        "annotations": said,
    }
    pod = {"labels": named, "annotations": {**said, **user_annotations(does.annotations)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": drop_empty(metadata),
        "spec": {
            "selector": {"matchLabels": {"app": agent.app}},
            "updateStrategy": _strategy(common),
            "template": {
                "metadata": drop_empty(pod),
                "spec": _pod(agent, does, common, settings),
            },
        },
    }


def _pod(
    agent: AgentDaemonSet, does: agent_pods.AgentPod, common: Daemonsets, settings: RenderSettings
) -> JsonObject:
    secrets = [name for section in does.sections for name in section.image_pull_secrets]
    key, value = agent.selector
    everywhere = (
        [{"operator": "Exists"}] if does.tolerates_all else pod_tolerations(common.tolerations)
    )
    return drop_empty(
        {
            "hostPID": does.host_pid or None,
            "serviceAccountName": service_account_of(agent.component),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {key: value},
            "tolerations": everywhere,
            "priorityClassName": common.priority_class_name or DEFAULT_PRIORITY_CLASS,
            "securityContext": common.pod_security_context,
            "imagePullSecrets": name_references(unique((*secrets, *settings.pull_secrets))),
            "containers": [_container(agent, does, settings)],
            "volumes": [*does.volumes, _state(agent), _token()],
        }
    )


def _container(
    agent: AgentDaemonSet, does: agent_pods.AgentPod, settings: RenderSettings
) -> JsonObject:
    policies = [section.image_pull_policy for section in does.sections]
    given = [one for section in reversed(does.sections) for one in section.env]
    ours = [EnvVar(name=name, value=value) for name, value in does.env.items()]
    paths = {
        "SLUICE_HOST_ROOT": agent_pods.HOST,
        "SLUICE_STATE_DIR": STATE_DIR,
        "SLUICE_TOKEN_FILE": f"{TOKEN_DIR}/token",
    }
    said = merge_env(given, without=(*_POD, *paths), below=(*settings.env, *ours))
    fixed = [EnvVar(name=name, value=value) for name, value in paths.items()]
    return drop_empty(
        {
            "name": f"sluice-{agent.component.value}",
            "image": does.image,
            "imagePullPolicy": next(filter(None, policies), settings.pull_policy),
            "args": list(does.args),
            "env": [*downward_api_env(**_POD), *env_fields(fixed), *env_fields(said)],
            "ports": list(does.ports),
            "resources": resource_fields(
                _resources([section.resources for section in does.sections])
            ),
            # The device files of GPUs are not given to us by anybody: we are who gives them.
            "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
            # The host's /dev is mounted over the place where Kubernetes would put it.
            "terminationMessagePath": "/run/termination-log",
            "volumeMounts": [
                *does.mounts,
                volume_mount("state", STATE_DIR),
                volume_mount("bus-token", TOKEN_DIR, read_only=True),
            ],
        }
    )


def _resources(said: Iterable[ResourceRequirements]) -> ResourceRequirements:
    """For each resource the first that says something of it."""
    both = list(said)[::-1]
    return ResourceRequirements(
        limits={name: amount for one in both for name, amount in one.limits.items()},
        requests={name: amount for one in both for name, amount in one.requests.items()},
    )


def _state(agent: AgentDaemonSet) -> JsonObject:
    """Each has its own: a journal belongs to one process."""
    return host_volume("state", f"{STATE_DIR}/{agent.component.value}", "DirectoryOrCreate")


def _token() -> JsonObject:
    token = {"audience": AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": "token"}
    return {"name": "bus-token", "projected": {"sources": [{"serviceAccountToken": token}]}}


def _strategy(common: Daemonsets) -> JsonObject:
    if common.update_strategy is UpdateStrategy.ON_DELETE:
        return {"type": common.update_strategy.value}
    said = common.rolling_update.max_unavailable or "1"
    # None at a time would replace nothing, and is refused.
    most = max(1, int(said)) if said.isdigit() else said if scaled_value(said, 100) else 1
    return {"type": common.update_strategy.value, "rollingUpdate": {"maxUnavailable": most}}
