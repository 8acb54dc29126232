"""Names of images, as a policy gives them in parts or whole: what the kubelet can pull."""

import re
from typing import Final

from libs.policy.findings import Finding, quote_value
from libs.policy.kinds.common import Image

LONGEST_TAG: Final = 128
_TAG: Final = rf"[A-Za-z0-9_][A-Za-z0-9_.-]{{0,{LONGEST_TAG - 1}}}"
_DIGEST: Final = r"sha256:[0-9a-f]{64}"
_HOST: Final = r"(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_VERSION: Final = re.compile(f"{_TAG}|{_DIGEST}")
_PATH: Final = re.compile(f"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::{_TAG})?(?:@{_DIGEST})?")


def image_path(image: Image) -> str:
    """Return the path without the variant's suffix; empty if the fields do not form one."""
    if not image.repository and not image.version:
        return image.image
    if not (image.repository and image.image and image.version):
        return ""
    separator = "@" if image.version.startswith("sha256:") else ":"
    return f"{image.repository}/{image.image}{separator}{image.version}"


def is_image_path(path: str) -> bool:
    """Report whether the kubelet takes this for the name of an image."""
    return _PATH.fullmatch(path) is not None


def image_finding(image: Image, path: str) -> Finding | None:
    """Return what makes the image of the section `path` one that no node can pull."""
    if image.version and not _VERSION.fullmatch(image.version):
        return Finding(
            field=f"{path}.version",
            value=quote_value(image.version),
            problem=f"cannot be the tag of an image: it has {len(image.version)} characters, of at"
            f" most {LONGEST_TAG}"
            if len(image.version) > LONGEST_TAG
            else "cannot be the tag or the digest of an image",
            remedy="write a version like 580.95.05, or a digest: sha256: and 64 hexadecimal digits",
        )
    whole = image_path(image)
    if not whole or is_image_path(whole):
        return None
    field = "repository" if image.repository else "image"
    return Finding(
        field=f"{path}.{field}",
        value=quote_value(getattr(image, field)),
        problem=f"makes {quote_value(whole)}, which cannot be the name of an image",
        remedy="write it as a registry has it: lowercase letters and digits, in parts that '/'"
        " separates",
    )
