"""The DaemonSet of one driver: of one target, for one pool, on nodes of one variant."""

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.policy.accounts import DRIVER_ACCOUNT
from libs.policy.digest import DriverIdentity, identity
from libs.policy.findings import Finding, Severity, shown
from libs.policy.images import path_of
from libs.policy.normal import PRIORITY, normal, once
from libs.policy.pools import Pool
from libs.policy.rendering.containers import Paths, containers, init_containers, paths
from libs.policy.rendering.files import ConfigMaps, files
from libs.policy.rendering.parts import COMMON, Part, names, some, tolerated
from libs.policy.rendering.probes import SCRIPT, SCRIPT_CONFIG_MAP, SCRIPT_TEXT
from libs.policy.rendering.rendered import (
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    TARGET_ANNOTATION,
    Operand,
    Rendered,
    Unrendered,
)
from libs.policy.rendering.settings import Settings
from libs.policy.rendering.volumes import volumes
from libs.policy.variants import Variant
from libs.policy.wanted import WantedDriver

APP = "nvidia-driver-daemonset"
COMPONENT = "nvidia-driver"
_FIELDS = {"driver": "spec.driver", "gds": "spec.gds", "gdrcopy": "spec.gdrcopy"}


def daemon_set_name(label: str) -> str:
    """Of the driver with this label value; another value has another DaemonSet."""
    return f"{APP}-{label}"


def driver(
    pool: Pool, variant: Variant, settings: Settings, config_maps: ConfigMaps
) -> Rendered | Unrendered:
    """The DaemonSet; or why there can be none."""
    wanted = normal(pool.driver)
    known = identity(pool.uid, pool.driver, variant)
    images = paths(wanted, known)
    if not isinstance(images, Paths):
        part, image, no_image = images
        finding = Finding(
            field=f"{_field(pool, part)}.image",
            value=shown(path_of(image)) if path_of(image) else "",
            problem=no_image.problem,
            remedy=no_image.remedy,
            severity=Severity.ERROR,
        )
        return Unrendered(pool=pool.key, identity=known, finding=finding)
    given = files(wanted, variant, config_maps)
    if isinstance(given, Finding):
        field = f"{_field(pool, 'driver')}.{given.field}"
        finding = msgspec.structs.replace(given, field=field)
        return Unrendered(pool=pool.key, identity=known, finding=finding)
    of_host = volumes(wanted)
    pod = {
        "hostPID": True,
        "hostNetwork": wanted.host_network or None,
        "serviceAccountName": DRIVER_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {DRIVER_LABEL: known.label},
        "tolerations": tolerated(wanted.pods.tolerations),
        "priorityClassName": wanted.pods.priority_class_name or PRIORITY,
        "securityContext": wanted.pods.security_context,
        "imagePullSecrets": names(once((*wanted.image.image_pull_secrets, *settings.pull_secrets))),
        "initContainers": init_containers(wanted, known, settings, images.driver),
        "containers": containers(wanted, known, images, of_host, given),
        "volumes": [*of_host.pod, *given.volumes],
    }
    made = _daemon_set(pool, wanted, known, settings, some(pod))
    return Rendered(operand=Operand.DRIVER, pool=pool.key, driver=known, object=made)


def startup_probe_script(settings: Settings) -> Rendered:
    """The ConfigMap that the startup probe of every driver runs."""
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": SCRIPT_CONFIG_MAP,
            "namespace": settings.namespace,
            "labels": COMMON,
        },
        "data": {SCRIPT.rpartition("/")[2]: SCRIPT_TEXT},
    }
    return Rendered(operand=Operand.DRIVER, object=made)


def _daemon_set(
    pool: Pool, wanted: WantedDriver, known: DriverIdentity, settings: Settings, pod: Part
) -> Part:
    labels = {
        **wanted.pods.labels,
        **COMMON,
        "app": APP,
        "app.kubernetes.io/component": COMPONENT,
        "nvidia.com/precompiled": "true" if wanted.use_precompiled else "false",
        "nvidia.com/node.os-version": known.variant.os_tag,
        DRIVER_LABEL: known.label,
    }
    annotations = {
        **wanted.pods.annotations,
        DRIVER_LABEL: known.label,
        POOL_ANNOTATION: pool.key,
        TARGET_ANNOTATION: known.target,
        INSTALL_ANNOTATION: known.install_digest,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": daemon_set_name(known.label),
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "selector": {"matchLabels": {"app": APP, DRIVER_LABEL: known.label}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": pod,
            },
        },
    }


def _field(pool: Pool, part: str) -> str:
    """Where the pool's policy says it: a NVIDIADriver is all about the driver."""
    field = _FIELDS[part]
    return field if part != "driver" or pool.kind == "ClusterPolicy" else "spec"
