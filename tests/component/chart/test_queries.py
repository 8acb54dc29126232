"""Every query of every panel and alert: its names exist, and a real Prometheus has data for it."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from libs.runtime.http import HttpServer, HttpSettings, Page
from libs.testing.prometheus import COMMAND, PROMTOOL, find_prometheus, running
from tests.component.chart.boards import ALERTS, RULES, chosen, panel_queries, variable_queries
from tests.component.chart.promql import grouped_by, metrics_of
from tests.component.chart.recording import INTERVAL, Recording, record
from tests.run.plan import GroundKind
from tests.support import eventually

# To record the fleet takes seconds of CPU time, and minutes on a machine that is overloaded.
pytestmark = GroundKind.PROMETHEUS.marker()
UNIT_TESTS: Final = Path(__file__).parent / "alerts_test.yaml"
FAILED: Final = "n1"
FIRING: Final = {"SluiceRolloutHalted", "SluiceGPUFailed", "SluiceXID", "SluiceAgentSilent"}
"""What the recorded fleet must be told about."""
QUIET: Final = {
    "SluiceNATSDown",
    "SluiceNoLeader",
    "SluiceQueriesUnanswered",
    "SluiceUpgradeStuck",
}
"""And what it must not be."""


@pytest.fixture(scope="session")
def recording() -> Recording:
    return record()


@pytest.fixture(scope="session")
def programs() -> Path:
    folder = find_prometheus(os.environ)
    if folder is None:
        pytest.skip(f"Prometheus is not there: run `{COMMAND}`")
    return folder


@pytest.fixture
async def prometheus(programs: Path, recording: Recording, tmp_path: Path) -> AsyncIterator[str]:
    """Run Prometheus with what it would have scraped of the recorded fleet; yield its address."""
    text, data, config = tmp_path / "scraped.txt", tmp_path / "data", tmp_path / "config.yaml"
    text.write_text(recording.open_metrics())
    promtool(programs, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data))
    config.write_text("{}\n")
    async with running(programs, config, data) as url:
        yield url


def promtool(programs: Path, *arguments: str) -> str:
    done = subprocess.run(
        [programs / PROMTOOL, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def ask(url: str, path: str, **query: Any) -> Any:
    def read() -> Any:
        with urlopen(f"{url}/api/v1/{path}?{urlencode(query)}") as answer:
            return json.load(answer)["data"]

    return await asyncio.to_thread(read)


async def series_of(url: str, recording: Recording, query: str) -> list[Any]:
    """Return the series of a query over the whole recording."""
    over = {"start": recording.began, "end": recording.ended, "step": INTERVAL}
    answer = await ask(url, "query_range", query=chosen(query, node=FAILED), **over)
    return answer["result"]


def test_every_name_of_a_query_exists(recording: Recording) -> None:
    """Metrics and labels are those that the services' own pages have."""
    exposed = recording.labels()
    queries = {**panel_queries(), **{name: rule["expr"] for name, rule in ALERTS.items()}}
    unknown: dict[str, object] = {}
    for where, query in queries.items():
        used = metrics_of(query)
        known = set[str]().union(*(exposed.get(metric, set()) for metric in used))
        wrong = {metric: labels - exposed.get(metric, set()) for metric, labels in used.items()}
        problems = [metric for metric in used if metric not in exposed]
        problems += [f"{metric}{{{label}}}" for metric, more in wrong.items() for label in more]
        problems += [f"by {label}" for label in grouped_by(query) - known]
        if problems or not used:
            unknown[where] = problems
    for where, query in variable_queries().items():
        metric, _, label = query.removeprefix("label_values(").removesuffix(")").partition(", ")
        if label not in exposed.get(metric, ()):
            unknown[where] = query
    assert unknown == {}


async def test_every_query_returns_data(prometheus: str, recording: Recording) -> None:
    empty = [
        where
        for where, query in panel_queries().items()
        if not await series_of(prometheus, recording, query)
    ]
    assert empty == []


async def test_variables_have_values(prometheus: str) -> None:
    for where, query in variable_queries().items():
        _, _, label = query.removesuffix(")").partition(", ")
        assert await ask(prometheus, f"label/{label}/values"), where


async def test_alerts_follow_what_happened(prometheus: str, recording: Recording) -> None:
    held = {
        name
        for name, rule in ALERTS.items()
        if await series_of(prometheus, recording, rule["expr"])
    }
    assert held >= FIRING
    assert held.isdisjoint(QUIET)


def test_the_rules_are_valid_and_do_what_their_tests_say(programs: Path) -> None:
    assert f"{len(ALERTS)} rules found" in promtool(programs, "check", "rules", str(RULES))
    assert "SUCCESS" in promtool(programs, "test", "rules", str(UNIT_TESTS))


def test_each_alert_has_a_unit_test() -> None:
    text = UNIT_TESTS.read_text()
    assert [name for name in ALERTS if f"alertname: {name}" not in text] == []


async def test_prometheus_reads_the_pages(
    programs: Path, recording: Recording, tmp_path: Path
) -> None:
    """A real scrape of the last page of each process."""
    last = {(each.job, each.port): each.page for each in recording.scrapes}
    pages = {f"/{job}/{port}": _served(page) for (job, port), page in last.items()}
    async with HttpServer(HttpSettings(host="127.0.0.1", port=0), pages) as server:
        host, port = server.address
        config = tmp_path / "config.yaml"
        jobs = [
            {
                "job_name": path,
                "metrics_path": path,
                "static_configs": [{"targets": [f"{host}:{port}"]}],
            }
            for path in pages
        ]
        scrape = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        config.write_text(json.dumps({"global": scrape, "scrape_configs": jobs}))
        async with running(programs, config, tmp_path / "data") as url:

            async def all_up() -> bool:
                return len((await ask(url, "query", query="up == 1"))["result"]) == len(pages)

            await eventually(all_up, within=60.0, every=0.5)
            counted = await ask(url, "query", query="scrape_samples_scraped")
    samples: Mapping[str, int] = {
        each["metric"]["job"]: int(each["value"][1]) for each in counted["result"]
    }
    assert samples == {
        f"/{job}/{port}": sum(not line.startswith("#") for line in page.splitlines())
        for (job, port), page in last.items()
    }


def _served(page: str) -> Any:
    return lambda: Page(page.encode(), content_type="text/plain; version=0.0.4; charset=utf-8")
