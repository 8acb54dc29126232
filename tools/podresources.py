"""Write the messages of the APIs of the kubelet and of container runtimes: `api_pb2.py`.

The definitions are those of the Go modules of `tools/kube` and `tools/node`, and one of our own.
The compiler runs in an environment of its own, so that a checkout need not have it. Needs Go. Run
it when the versions of these modules change: `.venv/bin/python tools/podresources.py`.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
KUBELET = ("tools/kube", "k8s.io/kubelet")
NRI = ("tools/node/containerd", "github.com/containerd/nri")
DEFINITIONS = {
    "libs/host/podresources/api": (KUBELET, "pkg/apis/podresources/v1/api.proto"),
    "libs/host/deviceplugin/api": (KUBELET, "pkg/apis/deviceplugin/v1beta1/api.proto"),
    "libs/host/dra/api": (KUBELET, "pkg/apis/dra/v1/api.proto"),
    "libs/host/dra/registration": (KUBELET, "pkg/apis/pluginregistration/v1/api.proto"),
    "libs/host/nri/api": (NRI, "pkg/api/api.proto"),
}
"""The files that are made, and the definition of each: of which Go module, and where there."""
OWN = "libs/host/nri/ttrpc"
"""Made of the definition beside it."""
COMPILER = "grpcio-tools==1.85.1"
"""Of the same release as grpcio in `requirements.lock`."""


def main() -> int:
    """Download the definitions, compile them, and replace the generated files."""
    for target, source in _sources():
        with tempfile.TemporaryDirectory() as work:
            _compile(source, target, Path(work))
    return 0


def _sources() -> Iterator[tuple[str, Path]]:
    for target, (module, definition) in DEFINITIONS.items():
        yield target, _module(*module) / definition
    yield OWN, ROOT / f"{OWN}.proto"


def _compile(source: Path, target: str, work: Path) -> None:
    # The name under which protobuf registers the definition, which must be unique in a process.
    definition = work / f"{target}.proto"
    definition.parent.mkdir(parents=True)
    shutil.copyfile(source, definition)
    compiler = ("-m", "grpc_tools.protoc", f"-I{work}", f"--python_out={work}")
    subprocess.run(
        [
            *(str(ROOT / ".venv/bin/uv"), "run", "--no-project"),
            *("--with", COMPILER, "python", *compiler, f"--pyi_out={work}", str(definition)),
        ],
        cwd=work,
        check=True,
    )
    for name in (f"{target}_pb2.py", f"{target}_pb2.pyi"):
        shutil.copyfile(work / name, ROOT / name)
        print(f"wrote {name}")


def _module(build: str, name: str) -> Path:
    """Return the folder of a Go module, which is downloaded if it is not there."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", name],
        cwd=ROOT / build,
        check=True,
        stdout=subprocess.PIPE,
    )
    return Path(json.loads(found.stdout)["Dir"])


if __name__ == "__main__":
    sys.exit(main())
