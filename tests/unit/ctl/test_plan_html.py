"""A plan as a page and as a picture: well-formed, self-contained, and safe with hostile names."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from msgspec.structs import replace

from libs.contracts.queries import PlanAnswer
from libs.ctl.answers import PlanView
from libs.ctl.views.plan import plan_page
from libs.ctl.views.rollout_html import rollout_html
from tests.unit.ctl.test_plan_view import NOW, PLAN, plan_svg, planned, with_capacity

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "\"'></text><script>alert(1)</script>&\x1b\x00\u202e]]>"


class Elements(HTMLParser):
    """Collects the elements of a page, their attributes and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def plan_html(view: PlanView) -> str:
    return rollout_html(plan_page(view))


def hostile_view() -> PlanView:
    node = planned(HOSTILE, 0.0, 60.0, 90.0, blocked_by=(HOSTILE,), lost=(HOSTILE,))
    still = replace(PLAN.plan.nodes[2], node=HOSTILE)
    plan = PlanAnswer(pool=HOSTILE, target="", nodes=(node, still), remarks=(HOSTILE,))
    return PlanView(version=HOSTILE, plan=plan)


def rectangles(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """Return left edges and widths of the bars of a kind, without those of the legend."""
    found = [each for each in svg.iter(f"{SVG}rect") if each.get("class") == kind]
    return [(float(each.get("x", "")), float(each.get("width", ""))) for each in found][:-1]


def test_the_picture_has_a_bar_for_each_node_on_one_scale() -> None:
    svg = ElementTree.fromstring(plan_svg(with_capacity()))
    first, second = rectangles(svg, "bar")
    assert second[0] == first[0] + first[1]
    assert first[1] == second[1] > 0
    (_, early), (_, late) = rectangles(svg, "late")
    assert (early, late) == (first[1] / 6, first[1] / 2)
    words = [each.text for each in svg.iter(f"{SVG}text")]
    assert {
        "node-1",
        "node-2",
        "32 GPUs",
        "0 GPUs",
        "available",
        "at least 16 of 32",
        "in the median run",
        "now",
    } <= set(words)
    assert any(each.get("class") == "area" for each in svg.iter(f"{SVG}path"))


def test_the_page_says_what_the_terminal_says() -> None:
    page = Elements(plan_html(replace(with_capacity(), at=NOW)))
    for words in (
        "gpus to 580.95.05",
        "20 min (p50), 25 min (p95)",
        "disruption budget web/frontend blocks",
        "skipped: cordoned",
        "maxUnavailable 2",
        "One node is skipped.",
        "2027-01-15 08:00:00 UTC",
    ):
        assert words in page.text
    assert page.tags.count("tr") == 1 + 3


def test_the_page_and_the_picture_count_the_nodes_that_fail() -> None:
    view = with_capacity()
    view = replace(view, plan=replace(view.plan, upgraded=1, failing=1))
    for shown in (plan_html(view), plan_svg(view)):
        assert "1 of 3 nodes not done, 1 will probably fail" in Elements(shown).text


def test_both_load_nothing_and_run_nothing() -> None:
    for text in (plan_html(with_capacity()), plan_svg(with_capacity())):
        page = Elements(text)
        assert not {"script", "link", "img", "iframe", "object", "use"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith(("on", "href", "src"))]
        assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
        assert "prefers-color-scheme: dark" in text
        assert "@media print" in text


def test_hostile_names_stay_text() -> None:
    ElementTree.fromstring(plan_svg(hostile_view()))
    harmless = Elements(plan_html(PLAN))
    for text in (plan_svg(hostile_view()), plan_html(hostile_view())):
        page = Elements(text)
        assert "script" not in page.tags
        assert set(page.tags) <= {*harmless.tags, *Elements(plan_svg(PLAN)).tags}
        assert "<script>alert(1)</script>" in page.text
        assert not any(each in text for each in "\x1b\x00\u202e")


def test_a_plan_without_nodes_is_a_page_too() -> None:
    empty = PlanView(version="1", plan=PlanAnswer(pool="gpus", target=""))
    assert "nothing to do" in Elements(plan_html(empty)).text
    ElementTree.fromstring(plan_svg(empty))
