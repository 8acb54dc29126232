"""The normal form of a wanted driver, and its digests: target, driver label, install digest.

The same driver must have the same digest in every release, even after the model gains fields.
Digests therefore cover only fields that differ from their defaults, under their JSON names.
`normalize` and the lists below select these fields; a change in either restarts the drivers of
every fleet.

With the host method the policy names a version, and a ConfigMap the files of that version. What is
installed are the files, so their digests are part of the identity: other files are another target.
"""

import hashlib
from typing import Any, Final

import msgspec

from libs.policy.artefacts import NO_ARTEFACTS, Artefacts, artefacts_by_system, wanted_artefact
from libs.policy.findings import Finding
from libs.policy.kinds.common import (
    Image,
)
from libs.policy.normal_form import normalize
from libs.policy.shapes import shape_of, to_json
from libs.policy.variants import Variant, variant_image
from libs.policy.wanted import (
    InstallMethod,
    WantedDriver,
)

DIGEST_LENGTH: Final = 32
"""Hexadecimal digits of a digest: 128 bits, short enough for a name with a prefix (63 characters).
"""

_SHAPE: Final = shape_of(WantedDriver, {})
_INSTALL_FIELDS: Final = (
    "method",
    "version",
    "cuda",
    "usePrecompiled",
    "kernelModuleType",
    "args",
    "env",
    "secretEnv",
    "rdma",
    "repoConfig",
    "certConfig",
    "kernelModuleConfig",
    "hostRoot",
    "installDir",
)
"""Fields that an installation depends on, besides the images."""
_MODULE_FIELDS: Final = ("args", "env")
"""Fields of GDS and GDRCopy containers that an installation depends on."""


class DriverIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies one driver on the nodes of one variant of one pool."""

    target: str
    variant: Variant
    label: str
    """The value of the label `sluice.dev/driver`."""
    install_digest: str


def driver_identity(
    pool: str, driver: WantedDriver, variant: Variant, artefacts: Artefacts = NO_ARTEFACTS
) -> DriverIdentity:
    """Identify a driver; only one that is installed on hosts depends on `artefacts`.

    The label covers the artefact of its variant alone: nodes whose files have not changed keep
    their driver when those of another system change, and the target with them.
    """
    artefact = _artefact_digest(driver, variant, artefacts)
    label = driver_label(pool, target_digest(driver), variant)
    return DriverIdentity(
        target=target_digest(driver, artefacts),
        variant=variant,
        label=_digest("host-label", [label, artefact]) if artefact else label,
        install_digest=install_digest(driver, variant, artefacts),
    )


def target_digest(driver: WantedDriver, artefacts: Artefacts = NO_ARTEFACTS) -> str:
    """Return the digest of the wanted driver; it is the same for all nodes of a pool.

    With the host method it covers the artefacts of all systems.
    """
    _, fields = _normal_fields(driver)
    target = _digest("target", fields)
    if driver.method is not InstallMethod.HOST:
        return target
    digests = artefacts_by_system(artefacts, driver)
    return _digest("host-target", [target, digests]) if digests else target


def driver_label(pool: str, target: str, variant: Variant) -> str:
    """Return the value of the label `sluice.dev/driver`, which selects the driver's pods.

    `pool` is the pool's key, not a uid: a policy that is created again keeps its drivers.
    """
    return _digest("label", [pool, target, msgspec.to_builtins(variant)])


def install_digest(
    driver: WantedDriver, variant: Variant, artefacts: Artefacts = NO_ARTEFACTS
) -> str:
    """Return the digest of what an installation depends on.

    A loaded driver may stay loaded while this digest does not change.
    """
    normal, fields = _normal_fields(driver)
    material: dict[str, Any] = {name: fields[name] for name in _INSTALL_FIELDS if name in fields}
    material["system"] = msgspec.to_builtins(variant)
    material["image"] = _image_fields(normal.image, variant)
    for name, part in (("gds", normal.gds), ("gdrcopy", normal.gdrcopy)):
        if part.enabled:
            chosen = {
                field: fields[name][field] for field in _MODULE_FIELDS if field in fields[name]
            }
            material[name] = {"image": _image_fields(part, variant), **chosen}
    if artefact := _artefact_digest(driver, variant, artefacts):
        material["artefact"] = artefact
    return _digest("install", material)


def _artefact_digest(driver: WantedDriver, variant: Variant, artefacts: Artefacts) -> str:
    """Return the digest of what is installed on hosts; empty if nothing is, or none is named."""
    if driver.method is not InstallMethod.HOST:
        return ""
    found = wanted_artefact(artefacts, driver, variant)
    return "" if isinstance(found, str) else found.digest


def _normal_fields(driver: WantedDriver) -> tuple[WantedDriver, dict[str, Any]]:
    """Return the normal form, as a struct and as JSON."""
    normal = normalize(driver)
    return normal, to_json(normal, _SHAPE)


def _image_fields(image: Image, variant: Variant) -> list[str]:
    """Return the image's path, or its fields where they do not form a path."""
    path = variant_image(image, variant)
    if isinstance(path, Finding):
        return [image.repository, image.image, image.version]
    return [path]


def _digest(kind: str, material: Any) -> str:
    text = msgspec.json.encode([f"sluice.dev/{kind}/1", material], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]
