"""A headless Chromium of the machine, driven by its DevTools protocol: pages for tests to look at.

`apt-get install chromium` has it on Debian. Without one, `find_chromium` returns None.
"""

import asyncio
import base64
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from libs.testing.child_process import WITHIN, ChildProcess
from libs.testing.errors import ServerFailed

_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--log-level=3",  # nothing reads its log between tests, and a full pipe would block it
)
_BLANK: Final = "about:blank"
_LISTENS: Final = "DevTools listening on "
_KEYS: Final = {
    "Tab": 9,
    "Enter": 13,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
_WAIT: Final = """(async () => {
  const holds = () => { try { return %s; } catch { return false; } };
  while (!holds()) await new Promise((again) => setTimeout(again, 50));
})()"""


def find_chromium() -> Path | None:
    """Return the program, or None if the machine has none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return Path(found) if found else None


class Page:
    """A tab. `errors` are those that its console would show."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []
        self._shown = asyncio.Event()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return await self._browser.call(method, session=self._session, **parameters)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression; raise if it throws."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression holds."""
        try:
            await self.evaluate(_WAIT % expression)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(
                f"not within {WITHIN} s: {expression}; errors: {self.errors}; shown:\n{text}"
            ) from None

    async def press(self, key: str) -> None:
        """Press and release a key."""
        of_key = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **of_key, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **of_key)

    async def go(self, url: str) -> None:
        """Go to an address; its scripts may not have run when this returns."""
        self._shown.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(WITHIN):
            await self._shown.wait()

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def emulate(self, *, media: str = "", **features: str) -> None:
        """Show the page as for a medium (`print`) and with features (`prefers_color_scheme`)."""
        named = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        await self.call("Emulation.setEmulatedMedia", media=media, features=named)

    async def screenshot(self) -> bytes:
        """Return what the window shows, as a PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])

    async def pdf(self) -> bytes:
        """Return the page as it would be printed."""
        return base64.b64decode((await self.call("Page.printToPDF", printBackground=False))["data"])

    def take(self, message: dict[str, Any]) -> None:
        """Keep an error that the browser reports, and learn that an address is shown."""
        parameters = message.get("params", {})
        if message["method"] == "Page.frameNavigated" and parameters["frame"]["url"] != _BLANK:
            self._shown.set()
        if message["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])


class Browser:
    """The connection to a running Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self.context = ""
        """Of which the pages are; empty: the one that the browser starts with."""

    async def read(self) -> None:
        """Read answers and events until the connection ends."""
        async for received in self._socket:
            message = json.loads(received.data)
            if "id" in message:
                answer = self._answers.pop(message["id"])
                if not answer.done():
                    answer.set_result(message)
            elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                page.take(message)

    async def call(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; raise `ServerFailed` if it is refused."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        of_session = {"sessionId": session} if session else {}
        call = {"id": number, "method": method, "params": parameters, **of_session}
        await self._socket.send_json(call)
        async with asyncio.timeout(WITHIN):
            message = await answer
        if "error" in message:
            raise ServerFailed(f"Chromium refused {method}: {message['error']}")
        return message["result"]

    async def open(self, url: str, *, width: int = 1280, height: int = 800) -> Page:
        """Open a page in a new tab."""
        context = {"browserContextId": self.context} if self.context else {}
        target = (await self.call("Target.createTarget", url=_BLANK, **context))["targetId"]
        attached = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Runtime", "Log", "Page"):
            await page.call(f"{domain}.enable")
        await page.resize(width, height)
        await page.go(url)
        return page


@asynccontextmanager
async def running(program: Path) -> AsyncGenerator[str]:
    """Run a browser without any history; yield the address of its protocol."""
    with tempfile.TemporaryDirectory(prefix="sluice-", ignore_cleanup_errors=True) as folder:
        process = await ChildProcess.start(
            "chromium", str(program), *_FLAGS, f"--user-data-dir={folder}", _BLANK
        )
        try:
            await process.wait_for_log(_LISTENS)
            address = process.log.partition(_LISTENS)[2].split()[0]
            yield address
            async with _connection(address) as browser:
                await browser.call("Browser.close")
                async with asyncio.timeout(WITHIN):
                    await process.wait()
        finally:
            await process.destroy()


@asynccontextmanager
async def connected(address: str) -> AsyncGenerator[Browser]:
    """Connect to a running browser; pages are opened in a context of their own, without history."""
    async with _connection(address) as browser:
        context = (await browser.call("Target.createBrowserContext"))["browserContextId"]
        browser.context = context
        yield browser
        await browser.call("Target.disposeBrowserContext", browserContextId=context)


@asynccontextmanager
async def _connection(address: str) -> AsyncGenerator[Browser]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, max_msg_size=0) as socket,
    ):
        browser = Browser(socket)
        reader = asyncio.create_task(browser.read())
        try:
            yield browser
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
