"""The DaemonSets of our agents: one each for the whole cluster, as its policy words them.

Agents have no credentials of Kubernetes: what they show the bus is a token for our audience alone.
They start on any node that they are for, with or without driver, RuntimeClass or bus.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from libs.contracts.identities import Writer
from libs.policy.accounts import account_of
from libs.policy.amounts import part_of
from libs.policy.kinds.cluster_policy import ClusterPolicy, Daemonsets, UpdateStrategy
from libs.policy.kinds.common import EnvVar, Resources
from libs.policy.normal import PRIORITY, annotations, labels, once, variables
from libs.policy.rendering import work
from libs.policy.rendering.parts import (
    COMMON,
    Part,
    host,
    literal,
    mount,
    names,
    needs,
    of_pod,
    some,
    tolerated,
)
from libs.policy.rendering.rendered import Operand, Rendered
from libs.policy.rendering.settings import Settings
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


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: what people select it by, where it runs, and what it does there."""

    component: Writer
    operand: Operand
    app: str
    selector: tuple[str, str]
    work: Callable[[ClusterPolicy, Operands, Settings], work.Work]


AGENTS: Final = (
    Agent(
        component=Writer.DISCOVERY,
        operand=Operand.DISCOVERY,
        app="gpu-feature-discovery",
        selector=("kubernetes.io/os", "linux"),
        work=work.discovery,
    ),
    Agent(
        component=Writer.DRIVER,
        operand=Operand.TOOLKIT,
        app="nvidia-container-toolkit-daemonset",
        selector=("nvidia.com/gpu.present", "true"),
        work=work.driver_agent,
    ),
    Agent(
        component=Writer.PLUGIN,
        operand=Operand.DEVICE_PLUGIN,
        app="nvidia-device-plugin-daemonset",
        selector=("nvidia.com/gpu.deploy.device-plugin", "true"),
        work=work.device_plugin,
    ),
    Agent(
        component=Writer.VALIDATOR,
        operand=Operand.VALIDATION,
        app="nvidia-operator-validator",
        selector=("nvidia.com/gpu.deploy.operator-validator", "true"),
        work=work.validator,
    ),
    Agent(
        component=Writer.TELEMETRY,
        operand=Operand.TELEMETRY,
        app="nvidia-dcgm-exporter",
        selector=("nvidia.com/gpu.deploy.dcgm-exporter", "true"),
        work=work.telemetry,
    ),
)


def agents(policy: ClusterPolicy, operands: Operands, settings: Settings) -> Iterator[Rendered]:
    """Those that are switched on."""
    on = {Writer.PLUGIN: operands.device_plugin, Writer.TELEMETRY: operands.telemetry}
    for agent in AGENTS:
        if on.get(agent.component, True):
            made = _daemon_set(agent, policy, operands, settings)
            yield Rendered(operand=agent.operand, object=made)


def _daemon_set(
    agent: Agent, policy: ClusterPolicy, operands: Operands, settings: Settings
) -> Part:
    common, does = policy.spec.daemonsets, agent.work(policy, operands, settings)
    named = {**labels(common.labels), **COMMON, "app": agent.app}
    said = annotations(common.annotations)
    metadata = {
        "name": agent.app,
        "namespace": settings.namespace,
        "labels": named,
        "annotations": said,
    }
    pod = {"labels": named, "annotations": {**said, **annotations(does.annotations)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": some(metadata),
        "spec": {
            "selector": {"matchLabels": {"app": agent.app}},
            "updateStrategy": _strategy(common),
            "template": {
                "metadata": some(pod),
                "spec": _pod(agent, does, common, settings),
            },
        },
    }


def _pod(agent: Agent, does: work.Work, common: Daemonsets, settings: Settings) -> Part:
    secrets = [name for section in does.sections for name in section.image_pull_secrets]
    key, value = agent.selector
    everywhere = [{"operator": "Exists"}] if does.everywhere else tolerated(common.tolerations)
    return some(
        {
            "hostPID": does.host_pid or None,
            "serviceAccountName": account_of(agent.component),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "nodeSelector": {key: value},
            "tolerations": everywhere,
            "priorityClassName": common.priority_class_name or PRIORITY,
            "securityContext": common.pod_security_context,
            "imagePullSecrets": names(once((*secrets, *settings.pull_secrets))),
            "containers": [_container(agent, does, settings)],
            "volumes": [*does.volumes, _state(agent), _token()],
        }
    )


def _container(agent: Agent, does: work.Work, settings: Settings) -> Part:
    policies = [section.image_pull_policy for section in does.sections]
    given = [one for section in reversed(does.sections) for one in section.env]
    ours = [EnvVar(name=name, value=value) for name, value in does.told.items()]
    paths = {
        "SLUICE_HOST_ROOT": work.HOST,
        "SLUICE_STATE_DIR": STATE_DIR,
        "SLUICE_TOKEN_FILE": f"{TOKEN_DIR}/token",
    }
    said = variables(given, without=(*_POD, *paths), below=(*settings.env, *ours))
    fixed = [EnvVar(name=name, value=value) for name, value in paths.items()]
    return some(
        {
            "name": f"sluice-{agent.component.value}",
            "image": does.image,
            "imagePullPolicy": next(filter(None, policies), settings.pull_policy),
            "args": list(does.args),
            "env": [*of_pod(**_POD), *literal(fixed), *literal(said)],
            "ports": list(does.ports),
            "resources": needs(_resources([section.resources for section in does.sections])),
            # The device files of GPUs are not given to us by anybody: we are who gives them.
            "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
            # The host's /dev is mounted over the place where Kubernetes would put it.
            "terminationMessagePath": "/run/termination-log",
            "volumeMounts": [
                *does.mounts,
                mount("state", STATE_DIR),
                mount("bus-token", TOKEN_DIR, read_only=True),
            ],
        }
    )


def _resources(said: Iterable[Resources]) -> Resources:
    """For each resource the first that says something of it."""
    both = list(said)[::-1]
    return Resources(
        limits={name: amount for one in both for name, amount in one.limits.items()},
        requests={name: amount for one in both for name, amount in one.requests.items()},
    )


def _state(agent: Agent) -> Part:
    """Each has its own: a journal belongs to one process."""
    return host("state", f"{STATE_DIR}/{agent.component.value}", "DirectoryOrCreate")


def _token() -> Part:
    token = {"audience": AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": "token"}
    return {"name": "bus-token", "projected": {"sources": [{"serviceAccountToken": token}]}}


def _strategy(common: Daemonsets) -> Part:
    if common.update_strategy is UpdateStrategy.ON_DELETE:
        return {"type": common.update_strategy.value}
    said = common.rolling_update.max_unavailable or "1"
    # None at a time would replace nothing, and is refused.
    most = max(1, int(said)) if said.isdigit() else said if part_of(said, 100) else 1
    return {"type": common.update_strategy.value, "rollingUpdate": {"maxUnavailable": most}}
