"""Image paths of containers, by the rules of the GPU Operator.

An image is given as repository, name and version, or as a full path in `image`.
"""

import msgspec

from libs.policy.kinds.common import Image
from libs.policy.variants import Variant


class MissingImage(msgspec.Struct, frozen=True, kw_only=True):
    """Why no image path can be formed, and what to do."""

    problem: str
    remedy: str


def image_path(image: Image) -> str:
    """Return the path without the variant's suffix; empty if the fields do not form one."""
    if not image.repository and not image.version:
        return image.image
    if not (image.repository and image.image and image.version):
        return ""
    separator = "@" if image.version.startswith("sha256:") else ":"
    return f"{image.repository}/{image.image}{separator}{image.version}"


def variant_image(image: Image, variant: Variant) -> str | MissingImage:
    """Return the path for nodes of this variant.

    The tag ends with the operating system, after the kernel if the driver is precompiled. A digest
    has no suffix.
    """
    path = image_path(image)
    if not path:
        return MissingImage(
            problem="names no image to run",
            remedy="set repository, image and version, or a full path in image",
        )
    if "@" in path:
        if not variant.kernel:
            return path
        return MissingImage(
            problem="is a digest, which names one image; precompiled drivers need one per kernel",
            remedy="set version to a tag",
        )
    if ":" not in path.rpartition("/")[2]:
        return MissingImage(
            problem="has no tag: the tag determines the driver version",
            remedy="set repository, image and version, or a full path with a tag in image",
        )
    kernel = f"-{variant.kernel}" if variant.kernel else ""
    return f"{path}{kernel}-{variant.os_tag}"
