"""What a dashboard and an alert are made of."""

from enum import StrEnum

import msgspec


class PanelKind(StrEnum):
    """How Grafana draws a panel."""

    GRAPH = "timeseries"
    NUMBER = "stat"
    GAUGE = "gauge"
    TABLE = "table"
    STATES = "state-timeline"


class Query(msgspec.Struct, frozen=True):
    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    help: str = ""
    queries: tuple[Query, ...]
    kind: PanelKind = PanelKind.GRAPH
    unit: str = "short"
    """As Grafana names units."""
    width: int = 12
    """Of 24 columns."""
    height: int = 8
    limits: tuple[float, float] | None = None
    """Where the scale begins and ends."""
    wrong_from: float | None = None
    """From this value on it is shown in red."""
    stacked: bool = False


class Row(msgspec.Struct, frozen=True):
    title: str
    panels: tuple[Panel, ...]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """What people choose above a dashboard: values of a label."""

    name: str
    metric: str
    label: str
    """A metric with this label."""
    several: bool = True
    """Whether several values or all can be chosen."""


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The name of the file, and the end of the uid."""
    title: str
    help: str
    variables: tuple[Variable, ...] = ()
    rows: tuple[Row, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        return tuple(panel for row in self.rows for panel in row.panels)


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    expr: str
    lasting: str
    """How long the expression must hold."""
    severity: Severity
    summary: str
    description: str
    runbook: str
    """The name of a page in docs/runbooks."""


def newest(metric: str, *labels: str, where: str = "") -> str:
    """Return one series for each combination of labels, whichever replica exports it.

    A replica that does not lead exports 0, and two exist while one replaces the other.
    """
    by = f" by ({', '.join(labels)})" if labels else ""
    series = f"{metric}{{{where}}}" if where else metric
    return f"max{by} ({series})" if by else f"max({series})"
