"""The DaemonSet of one driver, for one target, pool and variant."""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.policy.digest import (
    DEFAULT_PRIORITY_CLASS,
    DriverIdentity,
    driver_identity,
    normalize,
    unique,
)
from libs.policy.findings import Finding, Severity, quote_value
from libs.policy.installation import DRIVER_ACCOUNT
from libs.policy.pools import Pool
from libs.policy.render.pods import (
    COMMON_LABELS,
    SCRIPT,
    SCRIPT_CONFIG_MAP,
    SCRIPT_TEXT,
    ConfigFiles,
    JsonObject,
    ResolvedImages,
    containers,
    driver_volumes,
    drop_empty,
    init_containers,
    name_references,
    pod_tolerations,
    resolve_images,
)
from libs.policy.render.rendered import (
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
    Operand,
    RenderedObject,
    RenderFailure,
    RenderSettings,
)
from libs.policy.variants import Variant, image_path
from libs.policy.wanted import WantedDriver

_DEBIANS: Final = frozenset(("debian", "ubuntu"))
_RED_HATS: Final = frozenset(("centos", "fedora", "ol", "rhel", "rocky"))
_SUSES: Final = frozenset(("sl-micro", "sles"))

_MODULES: Final = "kernel-module-config"

ConfigMaps = Mapping[str, Collection[str]]
"""Keys of the ConfigMaps in the operands' namespace, by ConfigMap name."""


APP = "nvidia-driver-daemonset"
COMPONENT = "nvidia-driver"
_FIELDS = {"driver": "spec.driver", "gds": "spec.gds", "gdrcopy": "spec.gdrcopy"}


def daemon_set_name(label: str) -> str:
    """Return the name of the DaemonSet for a driver label value."""
    return f"{APP}-{label}"


def render_driver(
    pool: Pool, variant: Variant, settings: RenderSettings, config_maps: ConfigMaps
) -> RenderedObject | RenderFailure:
    """Render the DaemonSet, or return why it cannot be rendered."""
    driver = normalize(pool.driver)
    identity = driver_identity(pool.uid, pool.driver, variant)
    images = resolve_images(driver, identity)
    if not isinstance(images, ResolvedImages):
        part, image, no_image = images
        finding = Finding(
            field=f"{_field(pool, part)}.image",
            value=quote_value(image_path(image)) if image_path(image) else "",
            problem=no_image.problem,
            remedy=no_image.remedy,
            severity=Severity.ERROR,
        )
        return RenderFailure(pool=pool.key, identity=identity, finding=finding)
    files = config_files(driver, variant, config_maps)
    if isinstance(files, Finding):
        field = f"{_field(pool, 'driver')}.{files.field}"
        finding = msgspec.structs.replace(files, field=field)
        return RenderFailure(pool=pool.key, identity=identity, finding=finding)
    volumes = driver_volumes(driver)
    pod = {
        "hostPID": True,
        "hostNetwork": driver.host_network or None,
        "serviceAccountName": DRIVER_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {DRIVER_LABEL: identity.label},
        "tolerations": pod_tolerations(driver.pods.tolerations),
        "priorityClassName": driver.pods.priority_class_name or DEFAULT_PRIORITY_CLASS,
        "securityContext": driver.pods.security_context,
        "imagePullSecrets": name_references(
            unique((*driver.image.image_pull_secrets, *settings.pull_secrets))
        ),
        "initContainers": init_containers(driver, identity, settings, images.driver),
        "containers": containers(driver, identity, images, volumes, files),
        "volumes": [*volumes.pod, *files.volumes],
    }
    daemon_set = _daemon_set(pool, driver, identity, settings, drop_empty(pod))
    return RenderedObject(operand=Operand.DRIVER, pool=pool.key, driver=identity, object=daemon_set)


def startup_probe_script(settings: RenderSettings) -> RenderedObject:
    """Render the ConfigMap with the startup probe's script, which all drivers share."""
    script = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": SCRIPT_CONFIG_MAP,
            "namespace": settings.namespace,
            "labels": COMMON_LABELS,
        },
        "data": {SCRIPT.rpartition("/")[2]: SCRIPT_TEXT},
    }
    return RenderedObject(operand=Operand.DRIVER, object=script)


def _daemon_set(
    pool: Pool,
    driver: WantedDriver,
    identity: DriverIdentity,
    settings: RenderSettings,
    pod: JsonObject,
) -> JsonObject:
    labels = {
        **driver.pods.labels,
        **COMMON_LABELS,
        "app": APP,
        "app.kubernetes.io/component": COMPONENT,
        "nvidia.com/precompiled": "true" if driver.use_precompiled else "false",
        "nvidia.com/node.os-version": identity.variant.os_tag,
        DRIVER_LABEL: identity.label,
    }
    annotations = {
        **driver.pods.annotations,
        DRIVER_LABEL: identity.label,
        POOL_ANNOTATION: pool.key,
        TARGET_ANNOTATION: identity.target,
        INSTALL_ANNOTATION: identity.install_digest,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": daemon_set_name(identity.label),
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "selector": {"matchLabels": {"app": APP, DRIVER_LABEL: identity.label}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": pod,
            },
        },
    }


def _field(pool: Pool, part: str) -> str:
    """Return the path of a driver's part in the pool's policy."""
    field = _FIELDS[part]
    return field if part != "driver" or pool.kind == "ClusterPolicy" else "spec"


def config_files(
    driver: WantedDriver, variant: Variant, config_maps: ConfigMaps
) -> ConfigFiles | Finding:
    """Return the volumes and mounts, or a finding about a ConfigMap that cannot be mounted."""
    sources = {
        "repoConfig": (driver.repo_config, "repo-config", _repositories(variant)),
        "certConfig": (driver.cert_config, "cert-config", _certificates(variant)),
        "kernelModuleConfig": (driver.kernel_module_config, _MODULES, "/drivers"),
    }
    volumes: list[JsonObject] = []
    mounts: list[JsonObject] = []
    for field, (name, volume, folder) in sources.items():
        if not name:
            continue
        if refusal := _problem(name, folder, variant, config_maps):
            problem, remedy = refusal
            return Finding(field=field, value=quote_value(name), problem=problem, remedy=remedy)
        volumes.append({"name": volume, "configMap": {"name": name}})
        mounts += [
            {"name": volume, "mountPath": f"{folder}/{key}", "subPath": key, "readOnly": True}
            for key in sorted(config_maps[name])
        ]
    return ConfigFiles(
        volumes=tuple(volumes),
        mounts=tuple(part for part in mounts if part["name"] != _MODULES),
        modules=tuple(part for part in mounts if part["name"] == _MODULES),
    )


def _problem(
    name: str, folder: str, variant: Variant, config_maps: ConfigMaps
) -> tuple[str, str] | None:
    """Return why a ConfigMap cannot be mounted and the remedy, or None."""
    if not folder:
        place = f"is not supported by the driver image of {variant.system}"
        return place, "remove it from the policy of the pool with such nodes"
    if not config_maps.get(name):
        there = "is empty" if name in config_maps else "does not exist"
        remedy = "create it in the operands' namespace, with one key per file"
        return f"names a ConfigMap that {there}", remedy
    return None


def _repositories(variant: Variant) -> str:
    if variant.system in _DEBIANS:
        return "/etc/apt/sources.list.d"
    if variant.system in _RED_HATS:
        return "/etc/yum.repos.d"
    return "/etc/zypp/repos.d" if variant.system in _SUSES else ""


def _certificates(variant: Variant) -> str:
    if variant.system in _DEBIANS:
        return "/usr/local/share/ca-certificates"
    if variant.system in _RED_HATS:
        return "/etc/pki/ca-trust/extracted/pem"
    return "/etc/pki/trust/anchors" if variant.system in _SUSES else ""
