"""The page in a headless Chromium: what it shows, its keyboard, its print, and hostile text."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from libs.contracts.node import STATE_LABEL
from libs.contracts.queries import WaitReason
from libs.contracts.rollout import Counts
from libs.contracts.waits import WaitCode
from libs.ctl.web.board import Board, Encoder
from libs.ctl.web.model import Bar, Gpus, row_of
from libs.ctl.web.server import PageServer, serve
from libs.fleet.gpus import FleetGpu
from libs.fleet.node import Doing, FollowedNode
from libs.fleet.pools import Pool
from libs.fleet.status import EventLine, Source
from libs.testing.chromium import Browser, Page, connected, find_chromium, running
from tests.component.ctl.web_world import FAILED, add_gpu_node, page_of, set_label
from tests.component.ctl.world import make_world, rollout_status
from tests.run.plan import GroundKind

pytestmark = GroundKind.CHROMIUM.marker()

T0 = 1_800_000_000.0
NODES = "document.querySelectorAll('.cell').length"
FOCUS = "document.activeElement.textContent"
HOSTILE = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>\'&amp;'
COUNTS = asdict(Counts(total=1, waiting=1, unavailable=1, limit=1))
SOURCE = Source(name="Kubernetes (https://api)", gives="nodes, pools and GPUs", age=3.0)


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    """The address of one Chromium for all tests, each of which has a context of its own."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium`")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        address = runner.run(stack.enter_async_context(running(program)))
        yield address
        runner.run(stack.aclose())


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with connected(chromium) as found:
        yield found


class GivenPage:
    """A page of a board that the test writes."""

    def __init__(self) -> None:
        self.board = Board()
        self.story: dict[str, Any] = {}
        self.sources: tuple[Source, ...] = (SOURCE,)
        self._encoder = Encoder(self.board)

    def server(self) -> PageServer:
        return PageServer(
            push=self._push, tell=self._tell, on_change=self.board.on_change, hosts=frozenset()
        )

    def _push(self, revision: int) -> tuple[int, bytes]:
        return self.board.revision, self._encoder.since(revision, at=T0, sources=self.sources)

    async def _tell(self, name: str) -> bytes:
        return msgspec.json.encode(self.story)

    def add(self, name: str, doing: Doing = Doing.DONE, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "pool": "gpus",
            "state": f"upgrade-{doing}",
            "since": T0 - 60,
            **changes,
        }
        self.board.put_node(name, row_of(FollowedNode(name=name, doing=doing, **fields)))


@pytest.fixture
async def given() -> GivenPage:
    return GivenPage()


Visit = Callable[..., Any]


@pytest.fixture
async def visit(browser: Browser, given: GivenPage) -> AsyncIterator[Visit]:
    """Return a function that opens a view, and fail if the page's console shows an error."""
    async with serve(given.server(), "127.0.0.1", 0) as address:
        pages: list[Page] = []

        async def open_view(view: str = "fleet") -> Page:
            page = await browser.open(f"{address}#/{view}")
            pages.append(page)
            await page.until("document.getElementById('link').textContent === 'live'")
            return page

        yield open_view
        assert [each.errors for each in pages] == [[]] * len(pages)


async def test_a_change_in_kubernetes_reaches_the_page(browser: Browser, tmp_path: Path) -> None:
    async with make_world(tmp_path, nats=True) as world:
        await world.add_rollout(**rollout_status())
        for number in range(1, 4):
            await add_gpu_node(world, f"node-{number}")
        async with page_of(world) as address:
            page = await browser.open(address)
            await page.until(f"{NODES} === 3")
            await page.evaluate("window.same = document.querySelectorAll('.cell')[1]")
            await page.until("document.querySelector('tbody').textContent.includes('580.95.05')")
            await set_label(world, "node-2", STATE_LABEL, FAILED)
            await page.until("document.querySelectorAll('.cell.failed').length === 1")
            assert await page.evaluate("window.same.className") == "cell failed"
            assert page.errors == []


async def test_hostile_text_is_shown_as_text(given: GivenPage, visit: Visit) -> None:
    wait = WaitReason(code=WaitCode(HOSTILE), detail=HOSTILE, since=T0, who=HOSTILE)
    given.add(HOSTILE, Doing.WAITING, pool=HOSTILE, wait=wait, driver=HOSTILE, cause=HOSTILE)
    given.board.put_bar(
        HOSTILE,
        Bar(node=HOSTILE, pool=HOSTILE, target=HOSTILE, start=T0, steps=((HOSTILE, T0),)),
    )
    given.board.put_gpus(
        Gpus(
            products={HOSTILE: {HOSTILE: 1}},
            sick=(
                FleetGpu(node=HOSTILE, index=0, product=HOSTILE, health=HOSTILE, remedy=HOSTILE),
            ),
            sick_in_all=1,
        )
    )
    given.board.put_pools(
        (
            Pool(
                name=HOSTILE,
                version=HOSTILE,
                target="",
                phase=HOSTILE,
                because=HOSTILE,
                brake=HOSTILE,
                counts=COUNTS,
                waits={HOSTILE: 1},
            ),
        )
    )
    given.board.add_event(EventLine(at=T0, writer=HOSTILE, node=HOSTILE, kind="x", message=HOSTILE))
    given.sources = (Source(name=HOSTILE, gives=HOSTILE, problem=HOSTILE, behind={HOSTILE: 99.0}),)
    shown = msgspec.json.encode(HOSTILE).decode()
    for view in ("fleet", "timeline", "gpus", "events"):
        page = await visit(view)
        await page.until(f"document.querySelector('main').textContent.includes({shown})")
        await page.until(f"document.getElementById('sources').textContent.includes({shown})")
        assert await page.evaluate("window.owned === undefined")
        assert await page.evaluate("document.querySelectorAll('img, main script').length") == 0
    await page.evaluate("location.hash = '#/fleet'")
    await page.until(f"{NODES} === 1")
    await page.evaluate("document.querySelector('.cell').click()")
    await page.until(f"document.querySelector('h1').textContent === {shown}")


async def test_the_page_itself_can_run_nothing_that_is_not_a_file_of_ours(visit: Visit) -> None:
    page = await visit()
    blocked = await page.evaluate(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return false; }"
        " catch (error) { return error.name; } })()"
    )
    assert blocked == "TypeError"
    assert ["TrustedHTML" in each for each in page.errors] == [True]
    page.errors.clear()


async def test_twelve_nodes_have_cards_and_two_thousand_fit_the_window(
    given: GivenPage, visit: Visit
) -> None:
    for number in range(12):
        given.add(f"gpu-{number}", tuple(Doing)[number % len(Doing)])
    page = await visit()
    await page.until(f"{NODES} === 12")
    first = "document.querySelectorAll('.cell')"
    assert await page.evaluate(f"{first}[0].textContent") == "✕gpu-0upgrade-failed"
    assert await page.evaluate(f"[...{first}].map((each) => each.title)") == await page.evaluate(
        f"[...{first}].map((each) => each.getAttribute('aria-label'))"
    )
    signs = await page.evaluate(
        f"[...new Set([...{first}].map((each) => each.firstChild.textContent))].length"
    )
    assert signs == len(Doing), "each has a sign of its own"
    for number in range(12, 2000):
        given.add(f"gpu-{number}", Doing.DONE)
    await page.until(f"{NODES} === 2000")
    bottom = "document.querySelector('.map').getBoundingClientRect().bottom"
    assert await page.evaluate(bottom) <= 800
    for width in (1280, 390):
        await page.resize(width, 844)
        assert await page.evaluate("document.documentElement.scrollWidth") == width


async def test_everything_is_reached_by_keyboard(given: GivenPage, visit: Visit) -> None:
    for number in range(40):
        given.add(f"gpu-{number}", Doing.FAILED if number == 1 else Doing.DONE)
    given.story = story("gpu-1")
    page = await visit()
    await page.until(f"{NODES} === 40")
    reached: list[str] = []
    for _ in range(14):
        await page.press("Tab")
        reached.append(await page.evaluate("document.activeElement.className || " + FOCUS))
    assert reached[0] == "skip"
    assert reached[1:5] == ["Fleet", "Timeline", "GPUs", "Events"]
    for expected in ("kind failed", "kind done", "cell done large"):
        assert expected.removesuffix(" large") in reached
    assert reached.count("cell done") == 1, "the map is one stop"
    await page.evaluate("document.querySelector('.cell[tabindex=\"0\"]').focus()")
    await page.press("ArrowRight")
    assert "gpu-1:" in await page.evaluate("document.activeElement.title")
    await page.press("ArrowDown")
    below = await page.evaluate("document.activeElement.title")
    assert "gpu-1:" not in below
    await page.press("ArrowUp")
    assert "gpu-1:" in await page.evaluate("document.activeElement.title")
    await page.press("End")
    assert "gpu-39:" in await page.evaluate("document.activeElement.title")
    await page.press("Home")
    await page.press("ArrowRight")
    await page.press("Enter")
    await page.until("document.querySelector('.headline') !== null")
    assert await page.evaluate("document.activeElement.id") == "main"
    assert await page.evaluate("document.title") == "gpu-1 · Sluice"


async def test_the_focus_stays_while_nodes_change(given: GivenPage, visit: Visit) -> None:
    for number in range(3):
        given.add(f"gpu-{number}", Doing.WAITING)
    page = await visit()
    await page.until(f"{NODES} === 3")
    await page.evaluate("document.querySelectorAll('table a')[1].focus()")
    focused = await page.evaluate(FOCUS)
    given.add("gpu-0", Doing.FAILED)
    given.add("gpu-00", Doing.FAILED)
    await page.until(f"{NODES} === 4")
    await page.until("document.querySelectorAll('.cell.failed').length === 2")
    assert await page.evaluate(FOCUS) == focused == "gpu-1"


def story(name: str) -> dict[str, Any]:
    node = {"name": name, "pool": "gpus", "state": "upgrade-failed", "driver": "570.1",
            "since": T0 - 60, "attempt": 2, "in_flight": False, "skipped": False,
            "cause": "it broke"}  # fmt: skip
    why = {"wait": {"code": "failed", "detail": "it broke", "since": T0 - 60, "who": "a person"},
           "history": ["begun", "failed"], "pool": "gpus"}  # fmt: skip
    answer = {"node": node, "ready": True, "cordoned": True, "labels": {}, "why": why,
              "conditions": [], "events": [{"name": "Reason", "text": "Text", "at": ""}],
              "sources": [{"name": "the scheduler", "gives": "why", "problem": ""}]}  # fmt: skip
    checks = [{"name": "cuda", "passed": False, "text": "Xid 79"}]
    proof = {"passed": False, "at": T0, "driver": "580.1", "of_this_boot": True, "checks": checks}
    event = {"at": T0, "writer": "scheduler", "node": name, "kind": "step", "message": "happened"}
    return {"at": T0, "node": answer, "note": "cordoned; attempt 2; it broke", "proof": proof,
            "diagnoses": [], "gpus": [], "happened": [event]}  # fmt: skip


async def test_a_node_page_tells_why_who_can_end_it_and_the_proof(
    given: GivenPage, visit: Visit
) -> None:
    given.add("gpu-1", Doing.FAILED)
    given.story = story("gpu-1")
    page = await visit("node/gpu-1")
    await page.until("document.querySelector('.headline') !== null")
    text = await page.evaluate("document.querySelector('main').innerText")
    for expected in ("Waits: failed.", "it broke", "a person", "✕ failed", "Xid 79", "happened",
                     "Reason", "cordoned", "attempt 2", "begun"):  # fmt: skip
        assert expected in text, expected
    given.story["node"]["why"]["wait"]["detail"] = "it broke again"
    given.add("gpu-1", Doing.FAILED, cause="again")
    await page.until("document.querySelector('dl').textContent.includes('it broke again')")


async def test_the_timeline_has_bars_before_their_plan_and_says_what_it_leaves_out(
    given: GivenPage, visit: Visit
) -> None:
    for number in range(100):
        start = T0 - 6000 + 50 * number
        given.board.put_bar(
            f"gpu-{number}",
            Bar(
                node=f"gpu-{number}",
                pool="gpus",
                target="580.1",
                start=start,
                end=None if number == 99 else start + 300,
                outcome="" if number == 99 else "done",
                steps=(("wait-for-jobs-required", start), ("validation-required", start + 100)),
                planned=(start - 20, start + 250),
            ),
        )
    page = await visit("timeline")
    await page.until("document.querySelectorAll('.gantt tbody tr').length === 60")
    text = await page.evaluate("document.querySelector('main').innerText")
    assert "99 of 100 nodes done; 1 in flight; a node took 5 min (median)" in text
    assert "60 of 100 nodes are listed" in text
    order = await page.evaluate(
        "[...document.querySelector('.gantt .bar').children].map((each) => each.className.baseVal)"
    )
    assert order == ["plan", "s1", "s4", "ended"], "the plan is behind what happened"
    await page.evaluate("document.querySelector('.more button').click()")
    await page.until("document.querySelectorAll('.gantt tbody tr').length === 100")
    assert await page.evaluate("document.querySelectorAll('.curve path').length") == 2


async def test_print_leaves_out_what_only_a_screen_can_use(given: GivenPage, visit: Visit) -> None:
    given.add("gpu-1", Doing.FAILED)
    page = await visit()
    await page.until(f"{NODES} === 1")
    await page.emulate(media="print")
    visible = "getComputedStyle(document.querySelector('%s')).display"
    for hidden in ("nav", "input", "#map-hint"):
        assert await page.evaluate(visible % hidden) == "none", hidden
    for kept in (".map", "footer", "table", ".kind"):
        assert await page.evaluate(visible % kept) != "none", kept
    assert (await page.pdf()).startswith(b"%PDF")


async def test_an_age_is_shown_where_it_is_more_than_usual(given: GivenPage, visit: Visit) -> None:
    given.sources = (
        Source(name="A", gives="nodes", age=4.0),
        Source(name="B", gives="waits", age=150.0),
        Source(name="C", gives="why", age=5.0, problem="away"),
        Source(name="D", gives="plans", problem="away"),
    )
    given.add("gpu-1", Doing.DONE)
    page = await visit()
    await page.until(f"{NODES} === 1")
    lines = "[...document.querySelectorAll('#sources li')].map((line) => line.textContent)"
    assert await page.evaluate(lines) == [
        "nodes: from A, current",
        "waits: from B, last confirmed 2 min 30 s ago",
        "! why: not from C, last confirmed 5 s ago: away",
        "! plans: not from D: away",
    ]


async def test_dark_and_light_have_enough_contrast(given: GivenPage, visit: Visit) -> None:
    for number, doing in enumerate(Doing):
        given.add(f"gpu-{number}", doing)
    given.sources = (Source(name="x", gives="waits", problem="away"),)
    page = await visit()
    await page.until(f"{NODES} === {len(Doing)}")
    grounds: set[str] = set()
    for scheme in ("light", "dark"):
        await page.emulate(prefers_color_scheme=scheme)
        contrasts = await page.evaluate(_CONTRASTS)
        assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}, scheme
        grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


_CONTRASTS = """(() => {
  const parts = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (color) => parts(color).map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return color === "rgba(0, 0, 0, 0)" ? ground(node.parentElement) : color;
  };
  const found = {};
  for (const node of document.querySelectorAll("a, p, li, th, td, h1, h2, h3, button, .cell")) {
    if (node.classList.contains("skip")) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const name = `${node.tagName} ${node.className}`;
    found[name] = Math.min(found[name] ?? 99, ratio);
  }
  return found;
})()"""


async def test_a_lost_connection_is_said_and_the_page_goes_on_by_itself(
    given: GivenPage, browser: Browser
) -> None:
    given.add("gpu-1")
    async with serve(given.server(), "127.0.0.1", 0) as address:
        page = await browser.open(address)
        await page.until(f"{NODES} === 1")
    port = int(address.rstrip("/").rpartition(":")[2])
    await page.until("document.getElementById('link').textContent.startsWith('no connection')")
    assert "What you see is from 2027-01-15 08:00:00" in await page.evaluate(
        "document.getElementById('link').textContent"
    )
    assert await page.evaluate(NODES) == 1
    given.add("gpu-2")
    async with serve(given.server(), "127.0.0.1", port):
        await page.until(f"{NODES} === 2")
        assert await page.evaluate("document.getElementById('link').textContent") == "live"
