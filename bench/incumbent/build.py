"""Build the incumbent's controller, once, into the cache of `make kube`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from libs.testing import go_build
from libs.testing.go_build import Build, Program

COMMAND: Final = "make bench ARGS=incumbent"
MODULE: Final = Path(__file__).parent / "controller"
LIBRARY: Final = "github.com/NVIDIA/k8s-operator-libs"

_NAME: Final = "upgrade-controller"


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the program, building it if needed; `report` gets lines of progress."""
    plan = Build(
        command=COMMAND,
        without_go="the incumbent's controller is built with Go, and there is no `go` on the PATH: "
        "install it",
        folder=cache_folder(environ),
        modules=MODULE,
        programs=[Program(name=_NAME, package=".")],
    )
    return plan.run(environ, report=report) / _NAME


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the program, named by the library's version and the module's files."""
    version = go_build.pinned_version(MODULE / "go.mod", LIBRARY)
    return go_build.cache_folder(environ, "incumbent", version, sorted(MODULE.glob("*.*")))
