"""The detection of an active GPU Operator by its Lease."""

from typing import Any

import msgspec

from libs.kube.lease.record import GpuOperatorDetector
from libs.kube.views import Lease


def lease(holder: str | None = "op_1", *, seconds: int | None = 15, namespace: str = "n") -> Lease:
    spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
    metadata = {"name": "53822513.nvidia.com", "namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Lease)


def test_a_holder_is_active_for_the_lease_duration_after_each_change() -> None:
    detector = GpuOperatorDetector()
    assert detector.active_holders(now=0.0) == ""
    assert detector.seconds_until_expiry(now=0.0) is None
    detector.observe(None, lease(), now=0.0)
    assert detector.active_holders(now=16.9) == "op_1 holds lease n/53822513.nvidia.com"
    assert detector.seconds_until_expiry(now=10.0) == 7.0
    assert detector.active_holders(now=17.0) == ""
    detector.observe(lease(), lease(seconds=60), now=20.0)
    assert detector.active_holders(now=81.9) != ""
    assert detector.active_holders(now=82.0) == ""


def test_a_lease_without_a_duration_has_the_default() -> None:
    detector = GpuOperatorDetector()
    detector.observe(None, lease(seconds=None), now=0.0)
    assert (detector.active_holders(now=16.9) != "", detector.active_holders(now=17.0)) == (
        True,
        "",
    )


def test_a_released_lease_expires_at_once_and_a_deleted_one_later() -> None:
    detector = GpuOperatorDetector()
    detector.observe(None, lease(), now=0.0)
    detector.observe(lease(), lease(""), now=1.0)
    assert detector.active_holders(now=1.0) == ""
    detector.observe(lease(""), lease(), now=2.0)
    detector.observe(lease(), None, now=10.0)
    assert (detector.active_holders(now=26.9) != "", detector.active_holders(now=27.0)) == (
        True,
        "",
    )


def test_leases_of_several_namespaces_count_each_until_they_expire() -> None:
    detector = GpuOperatorDetector()
    detector.observe(None, lease(), now=0.0)
    detector.observe(None, lease("op_2", namespace="m"), now=5.0)
    assert detector.active_holders(now=6.0).count("holds lease") == 2
    assert detector.active_holders(now=18.0) == "op_2 holds lease m/53822513.nvidia.com"
