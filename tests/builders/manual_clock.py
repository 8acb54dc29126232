"""A clock for tests."""

STARTED_AT = 1_800_000_000.0


class ManualClock:
    """A clock that only `sleep` and the test advance."""

    def __init__(self, started_at: float = STARTED_AT) -> None:
        self.time = started_at
        self._started_at = started_at

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - self._started_at

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
