"""The client of the pod-resources API against a gRPC server: answers, restarts, failures."""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from libs.host.podresources.assignments import DeviceUse, PodContainer
from libs.host.podresources.client import MAX_BYTES, KubeletUnavailable, PodResources
from tests.component.podresources.kubelet import Answer, Kubelet, answer_with, pod, raw

WEB = DeviceUse("GPU-1", PodContainer("team-a", "web", "cuda"))


@pytest.fixture
def resources(kubelet: Kubelet) -> Iterator[PodResources]:
    resources = PodResources(str(kubelet.socket))
    yield resources
    resources.close()


def reason(resources: PodResources) -> str:
    with pytest.raises(KubeletUnavailable) as error:
        resources.list()
    return str(error.value)


def test_devices_of_pods_are_listed(kubelet: Kubelet, resources: PodResources) -> None:
    kubelet.answer = answer_with(pod("web", "GPU-1"), pod("other", "eth0", resource="nic"))
    assert resources.list().uses == (WEB,)
    kubelet.answer = answer_with()
    assert resources.list().uses == ()
    assert len(kubelet.requests) == 2
    assert not any(request.ListFields() for request in kubelet.requests)


def test_a_restarted_kubelet_is_asked_at_once(kubelet: Kubelet, resources: PodResources) -> None:
    kubelet.answer = answer_with(pod("web", "GPU-1"))
    for _ in range(3):
        assert resources.list().uses == (WEB,)
        kubelet.stop()
        assert "there is no socket" in reason(resources)
        # What a kubelet that was killed leaves behind.
        kubelet.socket.touch()
        assert "UNAVAILABLE" in reason(resources)
        kubelet.socket.unlink()
        kubelet.start()


def test_a_kubelet_that_does_not_know_its_pods_yet_has_not_answered(kubelet: Kubelet) -> None:
    """It has started while the API server is away: its list is empty, and its pods run on."""
    own = PodResources(str(kubelet.socket), own_namespace="team-a")
    static = pod("proxy")
    static.namespace = "kube-system"
    for early in ([], [static]):
        kubelet.answer = answer_with(*early)
        assert reason(own) == "the kubelet has started, and does not know its pods yet"
    kubelet.answer = answer_with(static, pod("web", "GPU-1"))
    assert own.list().uses == (WEB,)


def test_a_list_of_a_large_node_is_received(kubelet: Kubelet, resources: PodResources) -> None:
    """A list of 8 MiB: gRPC's own limit is 4 MiB."""
    many = [pod(f"web-{number}", "x" * 16_000, resource="nic") for number in range(500)]
    kubelet.answer = answer_with(*many, pod("web", "GPU-1"))
    assert len(kubelet.answer(None)) > 4 << 20
    assert resources.list().uses == (WEB,)


def _refuse(context: Any) -> bytes:
    context.abort(grpc.StatusCode.PERMISSION_DENIED, "the feature\nis off\x1b[31m" + "x" * 4_000)
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (raw(b"x" * (MAX_BYTES + 1)), "RESOURCE_EXHAUSTED"),
        (raw(b"\xff\xff"), "is not a list of pods"),
        (raw(b"\x0a\x04\x0a\x02\xff\xfe"), "is not a list of pods"),
        (_refuse, "PERMISSION_DENIED: the feature is off"),
    ],
    ids=["larger than the limit", "no message", "a name that is not UTF-8", "refused"],
)
def test_a_bad_answer_is_one_short_line(
    kubelet: Kubelet, resources: PodResources, answer: Answer, problem: str
) -> None:
    kubelet.answer = answer
    text = reason(resources)
    assert problem in text
    assert str(kubelet.socket) in text
    assert text.isprintable()
    assert len(text) < 500
    kubelet.answer = answer_with(pod("web", "GPU-1"))
    assert resources.list().uses == (WEB,)


def test_a_silent_kubelet_is_not_waited_for_long(
    kubelet: Kubelet, resources: PodResources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.host.podresources.client.SECONDS", 0.2)

    def answer(context: Any) -> bytes:
        while context.is_active():
            time.sleep(0.01)
        return b""

    kubelet.answer = answer
    assert "DEADLINE_EXCEEDED" in reason(resources)


def test_grpc_is_loaded_only_where_there_is_a_socket() -> None:
    program = """
import sys
from libs.host.podresources.client import KubeletUnavailable, PodResources
try:
    PodResources("/nowhere/kubelet.sock").list()
except KubeletUnavailable:
    print(sorted({"grpc", "google"} & set(sys.modules)))
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert child.stdout == b"[]\n"


def test_between_two_questions_grpc_has_no_threads(kubelet: Kubelet) -> None:
    """They would wake up several times a second. They end a moment after the answer."""
    program = """
import os, sys, time
from libs.host.podresources.client import PodResources
resources = PodResources(sys.argv[1])
for _ in range(2):
    resources.list()
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.01)
"""
    command = [sys.executable, "-c", program, str(kubelet.socket)]
    subprocess.run(command, check=True, timeout=60)
    assert len(kubelet.requests) == 2
