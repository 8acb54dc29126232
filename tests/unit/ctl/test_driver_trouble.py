"""Why the driver of a node in flight does not run, by its pod."""

from libs.contracts.node import NodeRecord
from libs.ctl.driver_trouble import driver_trouble
from libs.kube.views import (
    ContainerState,
    ContainerStatus,
    Metadata,
    Pod,
    PodStatus,
    Running,
    Terminated,
    Waiting,
)

CRASHED = ContainerState(terminated=Terminated(exit_code=1))
BACKS_OFF = ContainerState(waiting=Waiting(reason="CrashLoopBackOff"))
RUNS = ContainerState(running=Running())


def pod(
    *, state: ContainerState, last: ContainerState | None = None, restarts: int = 0, **more: bool
) -> Pod:
    container = ContainerStatus(
        name="nvidia-driver-ctr",
        state=state,
        last_state=last or ContainerState(),
        restart_count=restarts,
        ready=more.get("ready", False),
    )
    deleted = "2026-01-01T00:00:00Z" if more.get("deleted") else ""
    metadata = Metadata(name="driver-x", uid="uid-x", deletion_timestamp=deleted)
    return Pod(metadata=metadata, status=PodStatus(container_statuses=(container,)))


def test_a_driver_that_crashes_is_told_with_its_code_and_how_often() -> None:
    assert driver_trouble([pod(state=CRASHED)], None) == "driver exited with code 1"
    loop = pod(state=BACKS_OFF, last=CRASHED, restarts=1)
    assert driver_trouble([loop], None) == "driver exited with code 1, 2 times"
    again = pod(state=RUNS, last=CRASHED, restarts=2)
    assert driver_trouble([again], None) == "driver exited with code 1, 2 times"


def test_exits_before_the_operation_do_not_count() -> None:
    record = NodeRecord(node_uid="u", epoch=1, token=1, restarts_before={"uid-x": 2})
    again = pod(state=RUNS, last=CRASHED, restarts=2)
    assert driver_trouble([again], record) == ""


def test_an_image_that_is_not_there_is_told() -> None:
    pulled = pod(state=ContainerState(waiting=Waiting(reason="ImagePullBackOff")))
    assert driver_trouble([pulled], None) == "driver pod: ImagePullBackOff"


def test_a_driver_that_runs_starts_or_goes_is_in_no_trouble() -> None:
    starts = ContainerState(waiting=Waiting(reason="ContainerCreating"))
    for each in (
        pod(state=RUNS, last=CRASHED, restarts=1, ready=True),
        pod(state=starts),
        pod(state=CRASHED, deleted=True),
    ):
        assert driver_trouble([each], None) == ""
