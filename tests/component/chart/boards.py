"""The dashboards and alerts that the chart ships, as tests read them."""

import json
from typing import Any, Final

import yaml

from tests.component.chart.rendered import CHART

FOLDER: Final = CHART / "files/dashboards"
RULES: Final = CHART / "files/alerts.yaml"
BOARDS: Final = {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}
ALERTS: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in board["panels"] if each["type"] != "row"]


def panel_queries() -> dict[str, str]:
    """Return every query of every panel, by dashboard, panel and letter."""
    return {
        f"{name}: {panel['title']} {target['refId']}": target["expr"]
        for name, board in BOARDS.items()
        for panel in panels(board)
        for target in panel["targets"]
    }


def variable_queries() -> dict[str, str]:
    """Return the query of every variable, by dashboard and name."""
    return {
        f"{name}: {each['name']}": each["query"]["query"]
        for name, board in BOARDS.items()
        for each in board["templating"]["list"]
        if each["type"] == "query"
    }


def chosen(query: str, *, node: str) -> str:
    """Return the query with the variables as Grafana fills them in: one node, or all."""
    return (
        query.replace('node="$node"', f'node="{node}"')
        .replace("$node", ".*")
        .replace("$pool", ".*")
        .replace("$gpu", ".*")
        .replace("$__rate_interval", "2m")
    )
