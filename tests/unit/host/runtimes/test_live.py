"""The runtime at a socket: who listens there, what it says, and how it is restarted."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libs.host.runtimes.live import CriRuntime
from libs.host.runtimes.port import RestartRefused, RuntimeStatus, RuntimeUnavailable
from libs.host.tree import Tree
from tests.builders.machine_files import link, put, tree

CONTAINERD, K3S = "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"
SAYS = '{"name":"containerd","handlers":["runc","nvidia"],"reads_cdi":true}'


@pytest.fixture
def root() -> Generator[Path]:
    """A folder with a short name, as the path of a socket has to be short."""
    with tempfile.TemporaryDirectory(prefix="rt") as folder:
        yield Path(folder)


@contextmanager
def listening(root: Path, path: str) -> Generator[None]:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(file))
        server.listen()
        yield


def runtime(here: Tree, says: str = SAYS, **values: str) -> CriRuntime:
    return CriRuntime(here, command=(sys.executable, "-S", "-c", f"print({says!r})"), **values)


def describe(root: Path, *arguments: str, cgroup: str = "0::/system.slice/k3s.service") -> None:
    """Write what the kernel says of this process, which listens."""
    put(root, f"/proc/{os.getpid()}/cmdline", "\0".join(("containerd", *arguments, "")))
    put(root, f"/proc/{os.getpid()}/cgroup", f"{cgroup}\n")


def test_the_process_that_listens_is_described(root: Path) -> None:
    describe(root, "-c", "/a.toml")
    with listening(root, K3S):
        found = runtime(Tree(root)).status()
    assert found == RuntimeStatus(
        name="containerd",
        handlers=frozenset(("runc", "nvidia")),
        reads_cdi=True,
        pid=os.getpid(),
        config="/a.toml",
        unit="k3s.service",
    )


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("1:name=systemd:/../../system.slice/containerd.service", "containerd.service"),
        ("0::/system.slice/crio.service/main", "crio.service"),
        ("0::/user.slice/user-0.slice/session-1.scope", ""),
        ("2:cpu:/system.slice/containerd.service", ""),
        ("0::/system.slice/a b.service", ""),
    ],
)
def test_the_unit_is_read_from_the_cgroup(root: Path, cgroup: str, unit: str) -> None:
    describe(root, "--config=/b.toml", cgroup=cgroup)
    with listening(root, CONTAINERD):
        found = runtime(Tree(root)).status()
    assert (found.unit, found.config) == (unit, "/b.toml")


def test_a_link_to_a_socket_stays_within_the_machine(root: Path) -> None:
    (root / "run").mkdir()
    link(root, "/var/run", "/run")
    describe(root)
    with listening(root, CONTAINERD):
        found = runtime(Tree(root), socket=f"/var{CONTAINERD}").status()
    assert found.config == ""


def test_another_start_is_another_instance(root: Path) -> None:
    containers = runtime(Tree(root))
    assert containers.instance() is None
    seen = set[object]()
    for _ in range(2):
        with listening(root, CONTAINERD):
            seen.add(containers.instance())
            assert containers.instance() in seen
    assert len(seen) == 2


@pytest.mark.parametrize("says", ["", "[]", '{"error":"it answered UNIMPLEMENTED"}'])
def test_what_is_no_answer_is_said(root: Path, says: str) -> None:
    describe(root)
    with listening(root, CONTAINERD), pytest.raises(RuntimeUnavailable, match="answer"):
        runtime(Tree(root), says).status()


def test_which_socket_is_meant_is_said(root: Path) -> None:
    here = tree(root)
    with pytest.raises(RuntimeUnavailable, match="set CONTAINERD_SOCKET"):
        runtime(here).status()
    with listening(root, CONTAINERD), listening(root, K3S):
        with pytest.raises(RuntimeUnavailable, match=f"{CONTAINERD} and {K3S}"):
            runtime(here).status()
        assert runtime(here).instance() is None
    with pytest.raises(RuntimeUnavailable, match=r"does not answer at .*: Connection refused"):
        runtime(here, socket=K3S).status()
    with pytest.raises(RuntimeUnavailable, match="there is no socket /run/other"):
        runtime(here, socket="/run/other").status()


def test_a_signal_ends_a_process(root: Path) -> None:
    containers = runtime(Tree(root))
    with subprocess.Popen(["sleep", "60"]) as process:
        containers.stop(process.pid)
        assert process.wait() == -15
    containers.stop(process.pid)
    with pytest.raises(RestartRefused, match="is not known"):
        containers.stop(0)


def test_a_machine_without_systemctl_refuses(root: Path) -> None:
    with pytest.raises(RestartRefused, match=r"systemctl restart a\.service: .*Error"):
        runtime(Tree(root)).restart_unit("a.service")
