"""The metrics of sign-in."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Literal

from libs.runtime.metrics import Metrics
from services.signin.claims import Cause

Part = Literal["open", "verify", "answer"]
Dropped = Literal["queue", "old", "unreadable", "unsent", "failed"]
Reviewed = Literal["accepted", "refused", "failed", "dropped"]

_GRANTED: Final = "granted"


class SignInMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._sign_ins = metrics.counter(
            "sluice_signin_answers",
            "Answers to sign-ins: granted, or why refused.",
            result=(_GRANTED, *Cause),
        )
        self._dropped = metrics.counter(
            "sluice_signin_dropped",
            "Requests without an answer, by reason.",
            reason=("queue", "old", "unreadable", "unsent", "failed"),
        )
        self._cpu = metrics.counter(
            "sluice_signin_cpu_seconds",
            "CPU time by part: opening requests, verifying tokens, signing answers.",
            part=("open", "verify", "answer"),
        )
        self._reviews = metrics.counter(
            "sluice_signin_reviews",
            "Reviews of tokens by the API server: its answer, failed requests, and tokens that"
            " were not reviewed because too many waited.",
            outcome=("accepted", "refused", "failed", "dropped"),
        )
        self._revoked = metrics.counter(
            "sluice_signin_revocations",
            "Sessions that were closed because their pod, node, account or token became void.",
        )
        self._queue = metrics.gauge("sluice_signin_queue", "Requests that wait.")

    def granted(self) -> None:
        self._sign_ins.labels(_GRANTED).inc()

    def refused(self, cause: Cause) -> None:
        self._sign_ins.labels(cause).inc()

    def dropped(self, reason: Dropped) -> None:
        self._dropped.labels(reason).inc()

    def reviewed(self, outcome: Reviewed) -> None:
        self._reviews.labels(outcome).inc()

    def revoked(self, sessions: int) -> None:
        self._revoked.inc(sessions)

    def waiting(self, count: int) -> None:
        self._queue.set(count)

    @contextmanager
    def cpu(self, part: Part) -> Generator[None]:
        """Count the CPU time of a block that does not await."""
        start = time.thread_time()
        try:
            yield
        finally:
            self._cpu.labels(part).inc(time.thread_time() - start)
