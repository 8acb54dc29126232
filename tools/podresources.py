"""Write the messages of the kubelet's pod-resources API, `libs/host/podresources/api_pb2.py`.

The API's definition comes from the Go module `k8s.io/kubelet`, at the version of `tools/kube`. The
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
DEFINITION = "pkg/apis/podresources/v1/api.proto"
FOLDER = "libs/host/podresources"
COMPILER = "grpcio-tools==1.85.1"
"""Of the same release as grpcio in `requirements.lock`."""
_GENERATED = ("api_pb2.py", "api_pb2.pyi")


def main() -> int:
    """Download the definition, compile it, and replace the generated files."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        # The name under which protobuf registers the definition, which must be unique in a process.
        definition = work / FOLDER / "api.proto"
        definition.parent.mkdir(parents=True)
        shutil.copyfile(_module() / DEFINITION, definition)
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
            shutil.copyfile(work / FOLDER / name, ROOT / FOLDER / name)
            print(f"wrote {FOLDER}/{name}")
    return 0


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
