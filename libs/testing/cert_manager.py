"""cert-manager's definitions, of its Go module, once, into a cache outside the checkout.

They are part of `make helm`: the API server of the tests of the chart reads them.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing.cache import cache_root
from libs.testing.go_build import NotBuilt

_MODULE: Final = "github.com/cert-manager/cert-manager"
_VERSION: Final = "v1.21.2"
_SUM: Final = "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68="
_FILES: Final = tuple(
    f"cert-manager.io_{kinds}.yaml" for kinds in ("certificates", "clusterissuers", "issuers")
)


def find_definitions(environ: Mapping[str, str]) -> list[Path]:
    """Return the files that `make helm` fetched; none where it has not run."""
    folder = cache_root(environ) / "cert-manager" / _VERSION
    return [folder / name for name in _FILES] if folder.is_dir() else []


def fetch(environ: Mapping[str, str], *, report: Callable[[str], None]) -> None:
    """Fetch the definitions, if they are not there."""
    if find_definitions(environ):
        return
    report(f"definitions of cert-manager {_VERSION} …")
    source = _module(environ) / "deploy/crds"
    folder = cache_root(environ) / "cert-manager" / _VERSION
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as temporary:
        new = Path(temporary) / "definitions"
        new.mkdir()
        for name in _FILES:
            shutil.copyfile(source / name, new / name)
        try:
            new.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise


def _module(environ: Mapping[str, str]) -> Path:
    """Return the folder of the module, which is downloaded if it is not there."""
    go = shutil.which("go", path=environ.get("PATH", ""))
    if go is None:
        raise NotBuilt(
            "cert-manager's definitions come as a Go module, and there is no `go` on the PATH:"
            " install it"
        )
    with tempfile.TemporaryDirectory(prefix="sluice-module-") as outside:
        done = subprocess.run(
            [go, "mod", "download", "-json", f"{_MODULE}@{_VERSION}"],
            cwd=outside,
            env={**environ, "GOWORK": "off"},
            capture_output=True,
            text=True,
            check=False,
        )
    found: dict[str, str] = json.loads(done.stdout or "{}")
    if done.returncode or found.get("Sum") != _SUM:
        why = found.get("Error") or done.stderr.strip() or f"its sum is {found.get('Sum')}"
        raise NotBuilt(f"{_MODULE} {_VERSION} could not be had: {why}; check GOPROXY")
    return Path(found["Dir"])
