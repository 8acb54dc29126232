"""The digests of a wanted driver: target, driver label, install digest. Computed here alone.

A digest must come out the same for the same wish in every release, whatever fields the model has
grown: it is made of what is not at its default, by the names that people write. What goes into
each is `normal` and the lists below; a change of either makes every fleet restart its drivers.
"""

import hashlib
from typing import Any, Final

import msgspec

from libs.policy.images import MissingImage, variant_image
from libs.policy.kinds.common import Image
from libs.policy.manifests import to_json
from libs.policy.normalize import normalize
from libs.policy.shapes import shape_of
from libs.policy.variants import Variant
from libs.policy.wanted import WantedDriver

DIGEST_LENGTH: Final = 32
"""Hexadecimal digits of each: 128 bits; with room for a name before it in 63 characters."""

_SHAPE: Final = shape_of(WantedDriver, {})
_INSTALLED: Final = (
    "method",
    "version",
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
"""Fields that an installation depends on, beside the images."""
_OF_PART: Final = ("args", "env")
"""The same of a container beside the driver's."""


class DriverIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One driver on the nodes of one variant of one pool."""

    target: str
    variant: Variant
    label: str
    """The value of the label `sluice.dev/driver`."""
    install_digest: str


def driver_identity(pool_uid: str, driver: WantedDriver, variant: Variant) -> DriverIdentity:
    """All digests of a driver at once."""
    wanted = target_digest(driver)
    return DriverIdentity(
        target=wanted,
        variant=variant,
        label=driver_label(pool_uid, wanted, variant),
        install_digest=install_digest(driver, variant),
    )


def target_digest(driver: WantedDriver) -> str:
    """What is wanted, the same for all nodes of a pool."""
    return _digest("target", to_json(normalize(driver), _SHAPE))


def driver_label(pool_uid: str, target: str, variant: Variant) -> str:
    """What a node is told to run; driver pods are selected by it alone."""
    return _digest("label", [pool_uid, target, msgspec.to_builtins(variant)])


def install_digest(driver: WantedDriver, variant: Variant) -> str:
    """What the installation depends on: with the same digest a loaded driver may stay loaded."""
    wanted = normalize(driver)
    said: dict[str, Any] = to_json(wanted, _SHAPE)
    material: dict[str, Any] = {name: said[name] for name in _INSTALLED if name in said}
    material["system"] = msgspec.to_builtins(variant)
    material["image"] = _image(wanted.image, variant)
    for name, part in (("gds", wanted.gds), ("gdrcopy", wanted.gdrcopy)):
        if part.enabled:
            fields = {field: said[name][field] for field in _OF_PART if field in said[name]}
            material[name] = {"image": _image(part, variant), **fields}
    return _digest("install", material)


def _image(image: Image, variant: Variant) -> list[str]:
    """Its path; what was said, where that makes none."""
    path = variant_image(image, variant)
    if isinstance(path, MissingImage):
        return [image.repository, image.image, image.version]
    return [path]


def _digest(kind: str, material: Any) -> str:
    text = msgspec.json.encode([f"sluice.dev/{kind}/1", material], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]
