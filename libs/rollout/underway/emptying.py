"""Steps 3 to 5 as states: jobs may finish, pods leave, components let go; then the label moves.

Nothing here is irreversible. Must not know what happens to the driver.
"""

from libs.contracts.node import UpgradeState
from libs.contracts.waits import WaitCode
from libs.policy.kinds.strategy import OnJobTimeout
from libs.rollout import slots
from libs.rollout.decision import Outcome, Step
from libs.rollout.underway.ending import release
from libs.rollout.underway.evicting import emptied, recordoned, to_drain
from libs.rollout.underway.flight import Flight, enter, waits
from libs.rollout.underway.starting import quieted, start
from libs.rollout.waiting import few


def wait_for_jobs(f: Flight) -> Outcome:
    """The jobs that the policy waits for may come to their end."""
    again = recordoned(f)
    if again is not None:
        return again
    jobs = None if f.node.pods is None else [pod.shown for pod in f.node.pods if pod.job]
    if jobs is not None and not jobs:
        return _evict(f, "no job is left: pods with GPUs are asked to leave")
    shown = "nobody has looked at the node's pods yet" if jobs is None else few(jobs)
    if not f.overdue:
        return waits(f, WaitCode.JOBS, shown)
    if f.pool.strategy.on_job_timeout is OnJobTimeout.DEFER:
        return release(f, f"jobs: {shown}", back_off=True)
    return _evict(f, f"the time for jobs is over ({shown}): pods with GPUs are asked to leave")


def _evict(f: Flight, because: str) -> Step:
    return enter(f, UpgradeState.POD_DELETION_REQUIRED, because, paused=True)


def pod_deletion(f: Flight) -> Outcome:
    """Pods with GPUs leave."""
    held = emptied(f)
    if held is not None:
        return held
    if to_drain(f):
        return enter(f, UpgradeState.DRAIN_REQUIRED, "no pod with GPUs is left: it is drained")
    return _let_go(f)


def drain(f: Flight) -> Outcome:
    """The other pods leave too."""
    return emptied(f) or _let_go(f)


def _let_go(f: Flight) -> Outcome:
    """Steps 5 and 6: no state of their own."""
    return quieted(f, slots.QUIET, _given_back) or start(f)


def _given_back(f: Flight, why: str) -> Outcome:
    return release(f, why, back_off=True)
