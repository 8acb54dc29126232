"""`make kube`: build the five binaries, once, into a cache outside the checkout."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing.go_build import Build, Program, run_command
from libs.testing.realkube.binaries import ASSETS, MODULES, NAMES, cache_folder, pinned_version

COMMAND: Final = "make kube"

_VERSION = "k8s.io/component-base/version"


def build(
    environ: Mapping[str, str], *, report: Callable[[str], None], modules: Path = MODULES
) -> Path:
    """Return the folder with the binaries, building them if needed; `report` gets lines of
    progress.
    """
    plan = Build(
        command=COMMAND,
        without_go="the control plane is built with Go, and there is no `go` on the PATH: install "
        f"it, or set {ASSETS} to a directory that has {', '.join(NAMES)}",
        folder=cache_folder(environ, modules=modules),
        modules=modules,
        programs=[
            Program(name="etcd", package="go.etcd.io/etcd/server/v3", module="etcd"),
            *(
                kubernetes_program(name, pinned_version(modules))
                for name in NAMES
                if name != "etcd"
            ),
        ],
    )
    return plan.run(environ, report=report)


def kubernetes_program(name: str, release: str, *, module: str = "") -> Program:
    """Return a program of Kubernetes, which says that it is of this release."""
    major, minor, *_ = release.removeprefix("v").split(".")
    parts = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    return Program(
        name=name,
        package=f"k8s.io/kubernetes/cmd/{name}",
        module=module,
        variables={f"{_VERSION}.{key}": value for key, value in parts.items()},
    )


def main() -> int:
    """Build, as `make kube`."""
    return run_command(
        lambda report: build(os.environ, report=report),
        command=COMMAND,
        what="the control plane is",
    )


if __name__ == "__main__":
    sys.exit(main())
