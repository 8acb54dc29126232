"""The DaemonSet of one driver, for one target, pool and variant."""

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.policy.digest import DriverIdentity, driver_identity
from libs.policy.findings import Finding, Severity, quote_value
from libs.policy.images import image_path
from libs.policy.normalize import DEFAULT_PRIORITY_CLASS, normalize, unique
from libs.policy.pools import Pool
from libs.policy.render.containers import (
    ResolvedImages,
    containers,
    init_containers,
    resolve_images,
)
from libs.policy.render.files import ConfigMaps, config_files
from libs.policy.render.pod_fields import (
    COMMON_LABELS,
    JsonObject,
    drop_empty,
    name_references,
    pod_tolerations,
)
from libs.policy.render.probes import SCRIPT, SCRIPT_CONFIG_MAP, SCRIPT_TEXT
from libs.policy.render.rendered import (
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
    Operand,
    RenderedObject,
    RenderFailure,
)
from libs.policy.render.settings import RenderSettings
from libs.policy.render.volumes import driver_volumes
from libs.policy.service_accounts import DRIVER_ACCOUNT
from libs.policy.variants import Variant
from libs.policy.wanted import WantedDriver

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
