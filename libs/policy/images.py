"""Which image a container runs: repository, name and version as people give them, or a whole path.

The rules are those that people know from the GPU Operator. No registry is named here.
"""

import msgspec

from libs.policy.kinds.common import Image
from libs.policy.variants import Variant


class MissingImage(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is none, and what to do."""

    problem: str
    remedy: str


def image_path(image: Image) -> str:
    """The path without what a variant adds; empty where none can be made of it."""
    if not image.repository and not image.version:
        return image.image
    if not (image.repository and image.image and image.version):
        return ""
    between = "@" if image.version.startswith("sha256:") else ":"
    return f"{image.repository}/{image.image}{between}{image.version}"


def variant_image(image: Image, variant: Variant) -> str | MissingImage:
    """The path for nodes of this variant: its system, and a precompiled driver's kernel, end the
    tag. A digest stays as it is.
    """
    path = image_path(image)
    if not path:
        return MissingImage(
            problem="names no image to run",
            remedy="set repository, image and version, or the whole path in image",
        )
    if "@" in path:
        if not variant.kernel:
            return path
        return MissingImage(
            problem="is a digest: it names one image, and precompiled drivers have one per kernel",
            remedy="set version to a tag",
        )
    if ":" not in path.rpartition("/")[2]:
        return MissingImage(
            problem="names no version: the tag of the image says which driver it is",
            remedy="set repository, image and version, or a whole path with a tag in image",
        )
    kernel = f"-{variant.kernel}" if variant.kernel else ""
    return f"{path}{kernel}-{variant.os_tag}"
