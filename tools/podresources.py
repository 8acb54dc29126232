"""Write the messages of the kubelet's pod-resources and device plugin APIs: `api_pb2.py`.

The APIs' definitions come from the Go module `k8s.io/kubelet`, at the version of `tools/kube`. The
compiler runs in an environment of its own, so that a checkout need not have it. Needs Go. Run it
when the version of `tools/kube` changes: `.venv/bin/python tools/podresources.py`.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = "k8s.io/kubelet"
DEFINITIONS = {
    "libs/host/podresources": "pkg/apis/podresources/v1/api.proto",
    "libs/host/deviceplugin": "pkg/apis/deviceplugin/v1beta1/api.proto",
}
COMPILER = "grpcio-tools==1.85.1"
"""Of the same release as grpcio in `requirements.lock`."""
_GENERATED = ("api_pb2.py", "api_pb2.pyi")


def main() -> int:
    """Download the definitions, compile them, and replace the generated files."""
    module = _module()
    for folder, definition in DEFINITIONS.items():
        with tempfile.TemporaryDirectory() as work:
            _compile(module / definition, folder, Path(work))
    return 0


def _compile(source: Path, folder: str, work: Path) -> None:
    # The name under which protobuf registers the definition, which must be unique in a process.
    definition = work / folder / "api.proto"
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
    for name in _GENERATED:
        shutil.copyfile(work / folder / name, ROOT / folder / name)
        print(f"wrote {folder}/{name}")


def _module() -> Path:
    """Return the folder of the Go module, which is downloaded if it is not there."""
    found = subprocess.run(
        ["go", "mod", "download", "-json", MODULE],
        cwd=ROOT / "tools/kube",
        check=True,
        stdout=subprocess.PIPE,
    )
    return Path(json.loads(found.stdout)["Dir"])


if __name__ == "__main__":
    sys.exit(main())
