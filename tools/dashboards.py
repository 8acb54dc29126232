"""Write the chart's dashboards and alerts, and what docs/metrics.md says of the alerts.

With `--check`, list stale and superfluous files instead.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

import crds
import generated
from monitoring import grafana
from monitoring.alerts import ALERTS
from monitoring.fleet import FLEET
from monitoring.gpu import GPU
from monitoring.model import Alert
from monitoring.node import NODE
from monitoring.services import SERVICES
from monitoring.upgrade import UPGRADE

FOLDER: Final = "deploy/chart/files/dashboards"
RULES: Final = "deploy/chart/files/alerts.yaml"
PAGE: Final = "docs/metrics.md"
RUNBOOKS: Final = "docs/runbooks"
DASHBOARDS: Final = (FLEET, UPGRADE, GPU, NODE, SERVICES)

_HEADER: Final = "# Made from tools/monitoring by `make fix`; edit that, not this file.\n"
_MARKED: Final = re.compile(r"(<!-- made by dashboards: alerts -->\n).*?(<!-- end -->)", re.DOTALL)


def rules() -> dict[str, Any]:
    """Return the alerts as Prometheus reads them."""
    return {"groups": [{"name": "sluice", "rules": [_rule(alert) for alert in ALERTS]}]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasting,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{RUNBOOKS}/{alert.runbook}.md",
        },
    }


def _table() -> str:
    lines = ["| Alert | Severity | After | Means |", "| --- | --- | --- | --- |"]
    for alert in ALERTS:
        link = f"[`{alert.name}`](runbooks/{alert.runbook}.md)"
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", alert.summary)
        lines.append(f"| {link} | {alert.severity} | {alert.lasting} | {summary} |")
    return "\n".join(lines)


def expected_files() -> dict[str, str]:
    """Return the text of every generated file by path."""
    page = (generated.ROOT / PAGE).read_text()
    if len(_MARKED.findall(page)) != 1:
        raise SystemExit(f"{PAGE}: the mark `made by dashboards: alerts` must appear once")
    return {
        **{
            f"{FOLDER}/{each.name}.json": grafana.text(grafana.dashboard(each))
            for each in DASHBOARDS
        },
        RULES: _HEADER + crds.yaml(rules()),
        PAGE: _MARKED.sub(lambda mark: f"{mark[1]}\n{_table()}\n\n{mark[2]}", page),
    }


def main(arguments: Sequence[str]) -> int:
    """Write the files, or list the stale ones; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools.dashboards", description="Write dashboards.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args(arguments).check
    files = expected_files()
    status = generated.write(files, check=check)
    for file in sorted((generated.ROOT / FOLDER).glob("*")):
        if f"{FOLDER}/{file.name}" not in files:
            print(f"{FOLDER}/{file.name} belongs to no dashboard: remove it", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
