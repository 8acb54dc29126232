"""What each agent does on its node: what it is told, and what of the host it sees."""

from collections.abc import Mapping
from typing import Final

import msgspec

from sluice.policy.kinds.agents import MigStrategy
from sluice.policy.kinds.cluster_policy import ClusterPolicy
from sluice.policy.kinds.common import Agent as Section
from sluice.policy.rendering.parts import Part, host, mount
from sluice.policy.rendering.settings import Settings
from sluice.policy.rendering.volumes import BOTH_WAYS, FROM_HOST
from sluice.policy.wanted import HOST_ROOT, INSTALL_DIR, Operands

HOST: Final = "/host"
"""Where an agent sees the host's root."""

VALIDATIONS: Final = "/run/nvidia/validations"
METRICS_PORT: Final = 9400


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's part of a pod."""

    image: str
    args: tuple[str, ...] = ("agent",)
    sections: tuple[Section, ...]
    """Of the policy; where several say the same thing, the first holds."""
    told: Mapping[str, str] = {}
    """Variables of ours; people's hold over them."""
    volumes: tuple[Part, ...] = ()
    mounts: tuple[Part, ...] = ()
    annotations: Mapping[str, str] = {}
    ports: tuple[Part, ...] = ()
    host_pid: bool = False
    everywhere: bool = False
    """On nodes with whatever taint."""


def discovery(policy: ClusterPolicy, operands: Operands, settings: Settings) -> Work:
    """Finds out what a node is."""
    volumes, mounts = _host(policy, read_only=True)
    return Work(
        image=settings.images.discovery,
        sections=(policy.spec.gfd,),
        told={"MIG_STRATEGY": _mig(policy), "SLUICE_GPU_LABELS": _word(operands.gpu_labels)},
        volumes=volumes,
        mounts=mounts,
        everywhere=True,
    )


def driver_agent(policy: ClusterPolicy, operands: Operands, settings: Settings) -> Work:
    """Changes a node: drivers, toolkit, CDI, slices. Keeps the gate."""
    spec = policy.spec
    volumes, mounts = _host(policy, read_only=False)
    optional: Part = {"name": settings.artefacts, "optional": True}
    extra: list[Part] = [{"name": "artefacts", "configMap": optional}]
    seen = [mount("artefacts", "/etc/sluice/artefacts", read_only=True)]
    if spec.mig_manager.config.name:
        layouts: Part = {"name": spec.mig_manager.config.name, "optional": True}
        extra.append({"name": "mig-layouts", "configMap": layouts})
        seen.append(mount("mig-layouts", "/etc/sluice/mig", read_only=True))
    return Work(
        image=settings.images.driver,
        sections=(spec.toolkit, spec.mig_manager),
        told={
            "CDI_ENABLED": _word(spec.cdi.enabled),
            "SLUICE_DRIVER_DIR": spec.host_paths.driver_install_dir or INSTALL_DIR,
            "SLUICE_MIG_DEFAULT": spec.mig_manager.config.default,
            "SLUICE_MIG_MANAGER": _word(operands.mig_manager),
            "SLUICE_RUNTIME_CLASS": spec.operator.runtime_class,
            "SLUICE_TOOLKIT": _word(operands.toolkit),
            "SLUICE_TOOLKIT_DIR": spec.toolkit.install_dir,
        },
        volumes=(*volumes, *extra),
        mounts=(*mounts, *seen),
        host_pid=True,
    )


def device_plugin(policy: ClusterPolicy, _operands: Operands, settings: Settings) -> Work:
    """Offers GPUs to the kubelet."""
    spec = policy.spec
    volumes, mounts = _host(policy, read_only=True)
    folder = f"{spec.host_paths.kubelet_root_dir}/device-plugins"
    told = {"DEVICE_LIST_STRATEGY": "envvar", "MIG_STRATEGY": _mig(policy)}
    if spec.cdi.enabled:
        told |= {
            "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/",
            "DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri",
            "NVIDIA_CDI_HOOK_PATH": f"{spec.toolkit.install_dir}/toolkit/nvidia-cdi-hook",
        }
    return Work(
        image=settings.images.driver,
        args=("plugin",),
        sections=(spec.device_plugin,),
        told=told,
        volumes=(*volumes, host("device-plugins", folder, "DirectoryOrCreate")),
        mounts=(*mounts, mount("device-plugins", "/var/lib/kubelet/device-plugins")),
    )


def validator(policy: ClusterPolicy, operands: Operands, settings: Settings) -> Work:
    """Proves that a node's driver works."""
    checks = policy.spec.validator
    named = {
        "cuda": checks.cuda,
        "driver": checks.driver,
        "plugin": checks.plugin,
        "toolkit": checks.toolkit,
    }
    env = {name: {one.name: one.value for one in check.env} for name, check in named.items()}
    said = {name: values for name, values in env.items() if values}
    volumes, mounts = _host(policy, read_only=True)
    return Work(
        image=settings.images.validator,
        sections=(checks,),
        told={
            "MIG_STRATEGY": _mig(policy),
            "SLUICE_CHECK_PLUGIN": _word(operands.device_plugin),
            "SLUICE_CHECK_TOOLKIT": _word(operands.toolkit),
            "SLUICE_CHECK_VARIABLES": msgspec.json.encode(said, order="deterministic").decode(),
            "SLUICE_DRIVER_DIR": policy.spec.host_paths.driver_install_dir or INSTALL_DIR,
        },
        volumes=(*volumes, host("validations", VALIDATIONS, "DirectoryOrCreate")),
        mounts=(*mounts, mount("validations", VALIDATIONS)),
    )


def telemetry(policy: ClusterPolicy, _operands: Operands, settings: Settings) -> Work:
    """Measures GPUs, and tells which pod has which."""
    volumes, mounts = _host(policy, read_only=True)
    folder = f"{policy.spec.host_paths.kubelet_root_dir}/pod-resources"
    return Work(
        image=settings.images.telemetry,
        sections=(policy.spec.dcgm_exporter,),
        volumes=(*volumes, host("pod-resources", folder, "DirectoryOrCreate")),
        mounts=(*mounts, mount("pod-resources", "/var/lib/kubelet/pod-resources", read_only=True)),
        annotations=policy.spec.dcgm_exporter.annotations,
        ports=({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},),
    )


def _host(policy: ClusterPolicy, *, read_only: bool) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Its root, with what is mounted there later; and its devices, which come and go."""
    root = policy.spec.host_paths.root_fs or HOST_ROOT
    way = FROM_HOST if read_only else BOTH_WAYS
    seen = mount("host-root", HOST, propagation=way, read_only=read_only)
    return (host("host-root", root), host("dev", "/dev")), (seen, mount("dev", "/dev"))


def _mig(policy: ClusterPolicy) -> str:
    return (policy.spec.mig.strategy or MigStrategy.SINGLE).value


def _word(switch: bool) -> str:
    return "true" if switch else "false"
