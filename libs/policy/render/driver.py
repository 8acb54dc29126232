"""The DaemonSet of one driver, for one target, pool and variant."""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.policy.digest import DriverIdentity, driver_identity
from libs.policy.findings import Finding, quote_value
from libs.policy.normal_form import normalize
from libs.policy.pool import Pool
from libs.policy.render.pod_fields import MODULE_CONFIG, ConfigFiles, JsonObject
from libs.policy.render.pods import (
    DAEMONS_FILE,
    READY_FILE,
    SCRIPT,
    driver_pod,
)
from libs.policy.render.rendered import (
    COMMON_LABELS,
    IMAGE_ANNOTATION,
    INSTALL_ANNOTATION,
    POOL_ANNOTATION,
    SCRIPT_CONFIG_MAP,
    TARGET_ANNOTATION,
    Operand,
    RenderedObject,
    RenderFailure,
    RenderSettings,
)
from libs.policy.variants import Variant, variant_image
from libs.policy.wanted import WantedDriver

APP: Final = "nvidia-driver-daemonset"
"""The label of driver pods, as in the GPU Operator: people and tools select by it."""

ConfigMaps = Mapping[str, Collection[str]]
"""Keys of the ConfigMaps in the operands' namespace, by ConfigMap name."""

_SYSTEM_FAMILIES: Final = {
    **dict.fromkeys(("debian", "ubuntu"), "debian"),
    **dict.fromkeys(("centos", "fedora", "ol", "rhel", "rocky"), "red-hat"),
    **dict.fromkeys(("sl-micro", "sles"), "suse"),
}
_CONFIG_DIRECTORIES: Final = {
    "debian": ("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
    "red-hat": ("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
    "suse": ("/etc/zypp/repos.d", "/etc/pki/trust/anchors"),
}
"""Where systems read package repositories and certificates."""

_SCRIPT_TEXT: Final = f"""#!/bin/sh
# The driver has started once its kernel module, its daemons and nvidia-smi say so. What the
# validator reads of the driver's extra modules is written then.
if [ ! -f /sys/module/nvidia/refcnt ]; then
  echo "the kernel module nvidia is not loaded yet"
  exit 1
fi
if [ -f {DAEMONS_FILE} ]; then
  status=$(cat {DAEMONS_FILE})
  if [ "$status" != Ready ]; then
    echo "the driver's daemons say '$status', not Ready"
    exit 1
  fi
fi
if ! nvidia-smi; then
  echo "nvidia-smi failed"
  exit 1
fi
mkdir -p /run/nvidia/validations
cat > {READY_FILE}.new <<END
GDRCOPY_ENABLED: ${{GDRCOPY_ENABLED:-false}}
GDS_ENABLED: ${{GDS_ENABLED:-false}}
GPU_DIRECT_RDMA_ENABLED: ${{GPU_DIRECT_RDMA_ENABLED:-false}}
END
mv {READY_FILE}.new {READY_FILE}
"""


def daemon_set_name(label: str) -> str:
    """Return the name of the DaemonSet for a driver label value."""
    return f"sluice-driver-{label}"


def render_driver(
    pool: Pool, variant: Variant, settings: RenderSettings, config_maps: ConfigMaps
) -> RenderedObject | RenderFailure:
    """Render the DaemonSet, or return why it cannot be rendered."""
    driver = normalize(pool.driver)
    identity = driver_identity(pool.key, pool.driver, variant)
    images = _images(pool, driver, variant)
    files = _config_files(pool, driver, variant, config_maps)
    if isinstance(images, Finding):
        return RenderFailure(pool=pool.key, identity=identity, finding=images)
    if isinstance(files, Finding):
        return RenderFailure(pool=pool.key, identity=identity, finding=files)
    taint = pool.strategy.startup_taint
    pod = driver_pod(driver, identity, settings, images, files, startup_taint=taint)
    daemon_set = _daemon_set(pool, driver, identity, settings, pod)
    if settings.brings_images:
        daemon_set["metadata"]["annotations"] |= {IMAGE_ANNOTATION: images["driver"]}
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
        "data": {SCRIPT.rpartition("/")[2]: _SCRIPT_TEXT},
    }
    return RenderedObject(operand=Operand.DRIVER, object=script)


def _images(pool: Pool, driver: WantedDriver, variant: Variant) -> dict[str, str] | Finding:
    """Return the image paths of the enabled parts, or a finding about a part without an image."""
    parts = {"driver": driver.image}
    parts |= {"gds": driver.gds} if driver.gds.enabled else {}
    parts |= {"gdrcopy": driver.gdrcopy} if driver.gdrcopy.enabled else {}
    images: dict[str, str] = {}
    for part, image in parts.items():
        path = variant_image(image, variant)
        if isinstance(path, Finding):
            parent = _driver_path(pool) if part == "driver" else f"spec.{part}"
            return msgspec.structs.replace(path, field=f"{parent}.{path.field}")
        images[part] = path
    return images


def _config_files(
    pool: Pool, driver: WantedDriver, variant: Variant, config_maps: ConfigMaps
) -> ConfigFiles | Finding:
    """Return the files mounted from ConfigMaps, or a finding about one that cannot be mounted."""
    family = _SYSTEM_FAMILIES.get(variant.system, "")
    repositories, certificates = _CONFIG_DIRECTORIES.get(family, ("", ""))
    sources = {
        "repoConfig": (driver.repo_config, "repo-config", repositories),
        "certConfig": (driver.cert_config, "cert-config", certificates),
        "kernelModuleConfig": (driver.kernel_module_config, MODULE_CONFIG, "/drivers"),
    }
    volumes: list[JsonObject] = []
    mounts: list[JsonObject] = []
    for field, (name, volume, directory) in sources.items():
        if not name:
            continue
        problem = ""
        remedy = "create it in the operands' namespace, with one key per file"
        if not directory:
            problem = f"is not supported by the driver image of {variant.system}"
            remedy = "remove it from the policy of the pool with such nodes"
        elif not config_maps.get(name):
            state = "is empty" if name in config_maps else "does not exist"
            problem = f"names a ConfigMap that {state}"
        if problem:
            return Finding(
                field=f"{_driver_path(pool)}.{field}",
                value=quote_value(name),
                problem=problem,
                remedy=remedy,
            )
        volumes.append({"name": volume, "configMap": {"name": name}})
        mounts += [
            {"name": volume, "mountPath": f"{directory}/{key}", "subPath": key, "readOnly": True}
            for key in sorted(config_maps[name])
        ]
    return ConfigFiles(volumes=volumes, mounts=mounts)


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
        "app.kubernetes.io/component": "nvidia-driver",
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
            "annotations": {**annotations},
        },
        "spec": {
            "selector": {"matchLabels": {"app": APP, DRIVER_LABEL: identity.label}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
        },
    }


def _driver_path(pool: Pool) -> str:
    """Return the path of the driver's fields in the pool's policy."""
    return "spec.driver" if pool.kind == "ClusterPolicy" else "spec"
