"""`make helm`: build Helm and what tells an object's status as Helm and Flux do, and fetch
cert-manager's definitions, once, into a cache outside the checkout.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing import cert_manager, go_build
from libs.testing.go_build import TOOLS, Build, Program, pinned_version, run_command

COMMAND: Final = "make helm"
MODULE: Final = TOOLS / "helm"

_HELM: Final = "helm.sh/helm/v4"


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder with `helm`, building it if needed; `report` gets lines of progress."""
    return Build(
        command=COMMAND,
        without_go="Helm is built with Go, and there is no `go` on the PATH: install it",
        folder=cache_folder(environ),
        modules=MODULE,
        programs=[
            Program(
                name="helm",
                package=f"{_HELM}/cmd/helm",
                variables={f"{_HELM}/internal/version.version": _version()},
            )
        ],
    ).run(environ, report=report)


def build_kstatus(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder with `kstatus`, building it if needed. It is apart from Helm, so that a
    change of these few lines does not build Helm again.
    """
    return Build(
        command=COMMAND,
        without_go="kstatus is built with Go, and there is no `go` on the PATH: install it",
        folder=_kstatus_folder(environ),
        modules=MODULE,
        programs=[Program(name="kstatus", package="./kstatus")],
    ).run(environ, report=report)


def _kstatus_folder(environ: Mapping[str, str]) -> Path:
    pins = [MODULE / name for name in ("go.mod", "go.sum", "kstatus/main.go")]
    version = pinned_version(MODULE / "go.mod", "github.com/fluxcd/cli-utils")
    return go_build.cache_folder(environ, "kstatus", version, pins)


def find_kstatus(environ: Mapping[str, str]) -> Path | None:
    """Return the program that `make helm` built, or None where it has not run."""
    program = _kstatus_folder(environ) / "kstatus"
    return program if program.is_file() else None


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of `make helm`, named by the pinned version and platform."""
    pins = [MODULE / name for name in ("go.mod", "go.sum")]
    return go_build.cache_folder(environ, "helm", _version(), pins)


def find_helm(environ: Mapping[str, str]) -> Path | None:
    """Return the program that `make helm` built, or None where it has not run."""
    program = cache_folder(environ) / "helm"
    return program if program.is_file() else None


def _version() -> str:
    return pinned_version(MODULE / "go.mod", _HELM)


def main() -> int:
    """Build and fetch, as `make helm`."""

    def run(report: Callable[[str], None]) -> Path:
        cert_manager.fetch(os.environ, report=report)
        build_kstatus(os.environ, report=report)
        return build(os.environ, report=report)

    return run_command(run, command=COMMAND, what="Helm is")


if __name__ == "__main__":
    sys.exit(main())
