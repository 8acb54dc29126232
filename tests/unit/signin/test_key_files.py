"""The keys of sign-in: read again when their files change, and given up when they are outdated."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from libs.bus.callout import CalloutKeys, TooOld, Unreadable, new_seeds
from libs.runtime.fatal import Fatal
from services.signin.key_files import UNREADABLE, KeyFiles, SeedFiles
from tests.support import eventually
from tests.unit.signin.callout_server import CalloutServer
from tests.unit.signin.tokens import NOW

MAX_AGE = 9.0


class StepClock:
    """A clock in which time passes when the test says so."""

    def __init__(self) -> None:
        self.time = NOW
        self._wakes: list[asyncio.Event] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - NOW

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.Event()
        self._wakes.append(wake)
        await wake.wait()

    def step(self) -> None:
        """End all sleeps."""
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake.set()


class Files:
    """Two pairs of seed files, and the keys that are read from them."""

    def __init__(self, folder: Path) -> None:
        self.clock = StepClock()
        self.server = CalloutServer(self.clock)
        self._files = tuple(
            SeedFiles(str(folder / f"{name}.signing"), str(folder / f"{name}.xkey"))
            for name in ("now", "next")
        )
        self.keys = KeyFiles(self._files, clock=self.clock)

    def write(self, *pairs: tuple[str, str]) -> None:
        """Write the seeds of the present and the next pair."""
        for files, (signing, xkey) in zip(self._files, pairs, strict=True):
            Path(files.signing).write_text(f"{signing}\n")
            Path(files.xkey).write_text(xkey)

    def write_next_xkey(self, content: str | None) -> None:
        """Write a text instead of a seed; None removes the file."""
        path = Path(self._files[1].xkey)
        path.unlink() if content is None else path.write_text(content)

    def open(self, seeds: tuple[str, str]) -> CalloutKeys:
        """Return the pair that opens a request to these keys."""
        data = self.server.ask(CalloutKeys.from_seeds(*seeds), "a.b.c")
        pair, request = self.keys.open(data, server_xkey=self.server.xkey, max_age=MAX_AGE)
        assert request.token == "a.b.c"
        return pair

    def opens(self, seeds: tuple[str, str]) -> bool:
        try:
            return self.open(seeds).public_signing == CalloutKeys.from_seeds(*seeds).public_signing
        except Unreadable:
            return False

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until the condition holds."""

        def check() -> bool:
            self.clock.step()
            return condition()

        await eventually(check)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[asyncio.Task[None]]:
        task = asyncio.create_task(self.keys.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task})


A, B, C = new_seeds(), new_seeds(), new_seeds()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_the_pair_that_opens_a_request_signs_its_answer(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    assert files.open(A).public_signing == CalloutKeys.from_seeds(*A).public_signing
    assert files.open(B).public_signing == CalloutKeys.from_seeds(*B).public_signing
    assert not files.opens(C)


async def test_both_keys_are_replaced_without_an_interruption(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    async with files.running():
        assert files.opens(A)
        files.write(B, C)
        await files.until(lambda: files.opens(C))
        assert files.opens(B)
        assert not files.opens(A)


async def test_files_that_cannot_be_used_leave_the_keys_as_they_are(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    with structlog.testing.capture_logs() as logs:
        async with files.running():
            files.write(A, ("not a seed", B[1]))
            await files.until(lambda: any(line["log_level"] == "error" for line in logs))
            assert files.opens(B)
            for _ in range(3):
                files.clock.step()
                await asyncio.sleep(0.05)
            files.write(A, C)
            await files.until(lambda: files.opens(C))
    (error,) = [line for line in logs if line["log_level"] == "error"]
    assert error["event"] == "the keys of sign-in stay as they are"
    assert "not a seed" not in str(logs)
    assert all(seed not in str(logs) for pair in (A, B, C) for seed in pair)


@pytest.mark.parametrize(
    "content",
    [None, "", "SUAIBDPBAUTW", B[0], A[1][:-1] + "1"],
    ids=["missing", "empty", "short", "a signing key", "changed"],
)
async def test_the_first_reading_needs_seeds(files: Files, content: str | None) -> None:
    files.write(A, B)
    files.write_next_xkey(content)
    with pytest.raises(Fatal, match=r"next\.xkey") as error:
        await files.keys.load()
    assert not content or content not in str(error.value)


async def test_outdated_keys_are_read_again_at_once(files: Files) -> None:
    files.write(A, A)
    await files.keys.load()
    async with files.running() as task:
        files.write(B, B)
        for _ in range(UNREADABLE):
            assert not files.opens(B)
        await eventually(lambda: files.opens(B))
        assert not task.done()


async def test_keys_that_stay_outdated_end_the_process(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    async with files.running() as task:
        for _ in range(10 * UNREADABLE):  # a burst before the files were read again
            assert not files.opens(C)
        await asyncio.sleep(0.1)
        assert not task.done()
        for _ in range(UNREADABLE - 1):
            assert not files.opens(C)
        await asyncio.sleep(0.1)
        assert not task.done()
        assert not files.opens(C)
        with pytest.raises(Fatal) as error:
            await task
    text = str(error.value)
    assert CalloutKeys.from_seeds(*A).public_xkey in text
    assert "now.xkey" in text
    assert A[1] not in text


async def test_one_request_that_opens_starts_the_count_again(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    async with files.running() as task:
        for _ in range(5):
            for _ in range(UNREADABLE - 1):
                assert not files.opens(C)
            assert files.opens(A)
        await asyncio.sleep(0.1)
        assert not task.done()


async def test_requests_that_these_keys_open_prove_them_current(files: Files) -> None:
    """However old they are: the server's clock may be wrong."""
    files.write(A, B)
    await files.keys.load()
    async with files.running() as task:
        for ahead in (-3600, 3600):
            keys = CalloutKeys.from_seeds(*A)
            data = files.server.ask(keys, "a.b.c", clock_ahead=ahead)
            for _ in range(3 * UNREADABLE):
                with pytest.raises(TooOld if ahead < 0 else Unreadable):
                    files.keys.open(data, server_xkey=files.server.xkey, max_age=MAX_AGE)
        await asyncio.sleep(0.1)
        assert not task.done()


async def test_a_server_that_does_not_encrypt_does_not_use_these_keys(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    async with files.running() as task:
        for _ in range(2):
            for _ in range(UNREADABLE):
                with pytest.raises(Unreadable):
                    files.keys.open(b"eyJ.eyJ.x", server_xkey="", max_age=MAX_AGE)
            await asyncio.sleep(0.1)
        with pytest.raises(Fatal, match="does not encrypt its requests to"):
            await task


async def test_an_old_request_is_too_old_for_the_pair_that_opens_it(files: Files) -> None:
    files.write(A, B)
    await files.keys.load()
    data = files.server.ask(CalloutKeys.from_seeds(*B), "a.b.c")
    files.clock.time += MAX_AGE + 1
    with pytest.raises(TooOld):
        files.keys.open(data, server_xkey=files.server.xkey, max_age=MAX_AGE)
