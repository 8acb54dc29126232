"""A clock for tests."""

STARTED_AT = 1_800_000_000.0


class ManualClock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.time = STARTED_AT

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - STARTED_AT

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
