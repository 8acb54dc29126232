"""Whether a GPU Operator is at work, by what was seen of its Lease."""

from typing import Any

import msgspec

from libs.kube.lease.record import GpuOperatorDetector
from libs.kube.views import Lease


def lease(holder: str | None = "it_1", *, seconds: int | None = 15, namespace: str = "n") -> Lease:
    spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    metadata = {"name": "53822513.nvidia.com", "namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Lease)


def test_a_holder_is_active_for_the_lease_duration_after_each_change() -> None:
    foreign = GpuOperatorDetector()
    assert foreign.active_holders(now=0.0) == ""
    assert foreign.seconds_until_expiry(now=0.0) is None
    foreign.observe(None, lease(), now=0.0)
    assert foreign.active_holders(now=16.9) == "it_1 holds lease n/53822513.nvidia.com"
    assert foreign.seconds_until_expiry(now=10.0) == 7.0
    assert foreign.active_holders(now=17.0) == ""
    foreign.observe(lease(), lease(seconds=60), now=20.0)
    assert foreign.active_holders(now=81.9) != ""
    assert foreign.active_holders(now=82.0) == ""


def test_a_lease_without_a_duration_has_the_default() -> None:
    foreign = GpuOperatorDetector()
    foreign.observe(None, lease(seconds=None), now=0.0)
    assert (foreign.active_holders(now=16.9) != "", foreign.active_holders(now=17.0)) == (True, "")


def test_a_released_lease_expires_at_once_and_a_deleted_one_later() -> None:
    foreign = GpuOperatorDetector()
    foreign.observe(None, lease(), now=0.0)
    foreign.observe(lease(), lease(""), now=1.0)
    assert foreign.active_holders(now=1.0) == ""
    foreign.observe(lease(""), lease(), now=2.0)
    foreign.observe(lease(), None, now=10.0)
    assert (foreign.active_holders(now=26.9) != "", foreign.active_holders(now=27.0)) == (True, "")


def test_leases_of_several_namespaces() -> None:
    foreign = GpuOperatorDetector()
    foreign.observe(None, lease(), now=0.0)
    foreign.observe(None, lease("it_2", namespace="m"), now=5.0)
    assert foreign.active_holders(now=6.0).count("holds lease") == 2
    assert foreign.active_holders(now=18.0) == "it_2 holds lease m/53822513.nvidia.com"
