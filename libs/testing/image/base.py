"""The base of an image without a builder: Debian packages, unpacked into a folder."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from libs.testing.debian import unpack
from libs.testing.go_build import NotBuilt, go_target

STATUS: Final = "var/lib/dpkg/status.d"
"""A file for each package, where programs look that read what an image consists of."""

_PACKAGES: Final = (
    *("base-files", "ca-certificates", "netbase"),
    *("libbz2-1.0", "libc6", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libssl3"),
    *("libstdc++6", "libuuid1", "zlib1g"),
)
"""Unpacked only: what their scripts would do on installation, `fill` does."""
_CURL: Final = (
    *("curl", "libbrotli1", "libcom-err2", "libcurl4", "libgmp10", "libgnutls30"),
    *("libgssapi-krb5-2", "libhogweed6", "libidn2-0", "libk5crypto3", "libkeyutils1"),
    *("libkrb5-3", "libkrb5support0", "libldap-2.5-0", "libnettle8", "libnghttp2-14"),
    *("libp11-kit0", "libpsl5", "librtmp1", "libsasl2-2", "libssh2-1", "libtasn1-6"),
    *("libunistring2", "libzstd1"),
)
"""For people who read a page of metrics in its pod, with all that curl is linked to."""
_FIELDS: Final = ("Package", "Source", "Version", "Architecture", "Maintainer", "Homepage")
_MERGED: Final = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into /usr, in a system and not in its packages."""
_FILES: Final = {
    "etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"


def fill(root: Path, *, python: str, architecture: str) -> None:
    """Write a Debian with this Python into an empty folder."""
    pythons = (
        f"python{python}-minimal",
        *(f"libpython{python}-{x}" for x in ("minimal", "stdlib")),
    )
    packages = (*pythons, *_PACKAGES, *_CURL)
    with _apt_options(architecture) as options:
        unpack(packages, root, options=options)
        _write_status(root, packages, options)
    for name in _MERGED:
        if (root / name).is_dir():
            shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(root / name)
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin/python3").symlink_to(f"python{python}")
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / _CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
    (root / _CERTIFICATES).write_bytes(b"".join(each.read_bytes() for each in certificates))
    (root / "usr/lib/ssl").mkdir(exist_ok=True)
    (root / "usr/lib/ssl/cert.pem").symlink_to(f"/{_CERTIFICATES}")
    for name, text in _FILES.items():
        (root / name).write_text(text)


@contextmanager
def _apt_options(architecture: str) -> Generator[Sequence[str]]:
    """Yield the options with which apt reads the packages of an architecture.

    For another than this machine's it gets lists of its own, and nothing here changes.
    """
    if architecture == go_target()[1]:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="sluice-apt-") as folder:
        for name in ("lists/partial", "cache/archives/partial"):
            (Path(folder) / name).mkdir(parents=True)
        (Path(folder) / "status").touch()
        settings = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "",
            "Dir::State::lists": f"{folder}/lists",
            "Dir::State::status": f"{folder}/status",
            "Dir::Cache": f"{folder}/cache",
        }
        options = [f"--option={name}={value}" for name, value in settings.items()]
        _apt("apt-get", *options, "update")
        yield options


def _write_status(root: Path, packages: Sequence[str], options: Sequence[str]) -> None:
    """Write name, version and source of each package."""
    shown = _apt("apt-cache", *options, "show", "--no-all-versions", *packages)
    folder = root / STATUS
    folder.mkdir(parents=True)
    for record in filter(None, shown.split("\n\n")):
        fields = dict(
            line.split(": ", 1) for line in record.splitlines() if ": " in line and line[0] != " "
        )
        kept = [f"{name}: {fields[name]}\n" for name in _FIELDS if name in fields]
        text = "".join((kept[0], "Status: install ok installed\n", *kept[1:]))
        (folder / fields["Package"]).write_text(text)
    missing = sorted(set(packages) - {file.name for file in folder.iterdir()})
    if missing:
        raise NotBuilt(f"apt-cache shows no {', '.join(missing)}: run `apt-get update`")


def _apt(*command: str) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        raise NotBuilt(
            f"`{' '.join(command)}` failed: check the network. It says:\n{done.stderr.strip()}"
        )
    return done.stdout
