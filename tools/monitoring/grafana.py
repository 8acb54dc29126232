"""Dashboards as Grafana reads them, and as people can read them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from monitoring.model import Dashboard, Panel, PanelKind, Row, Variable

Object = dict[str, Any]

COLUMNS: Final = 24
SCHEMA: Final = 39
"""Of Grafana 10.4; later versions bring it up to date when they load it."""
WIDTH: Final = 120
_PROMETHEUS: Final = {"type": "prometheus", "uid": "$datasource"}


def dashboard(board: Dashboard) -> Object:
    """Return the model of a dashboard."""
    return {
        "uid": f"sluice-{board.name}",
        "title": board.title,
        "description": board.help,
        "tags": ["sluice"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Sluice",
                "tags": ["sluice"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_source(), *map(_variable, board.variables)]},
        "panels": list(_placed(board.rows)),
    }


def text(model: Mapping[str, Any]) -> str:
    """Return a model as JSON, with what is short on one line."""
    return "\n".join(_lines(model, "")) + "\n"


def _source() -> Object:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: Variable) -> Object:
    query = f"label_values({variable.metric}, {variable.label})"
    chosen: Object = {"multi": True, "includeAll": True, "allValue": ".*"}
    return {
        "name": variable.name,
        "type": "query",
        "datasource": _PROMETHEUS,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        **(chosen if variable.several else {}),
    }


def _placed(rows: tuple[Row, ...]) -> Iterator[Object]:
    """Yield rows and panels from left to right and from above; ids count them."""
    number = top = 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            number += 1
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            yield _panel(panel, number, place)
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _panel(panel: Panel, number: int, place: Object) -> Object:
    is_table = panel.kind is PanelKind.TABLE
    targets: list[Object] = [
        {
            "refId": chr(ord("A") + index),
            "expr": query.expr,
            **({"legendFormat": query.legend} if query.legend else {}),
            **({"instant": True, "range": False, "format": "table"} if is_table else {}),
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        **({"description": panel.help} if panel.help else {}),
        "gridPos": place,
        "datasource": _PROMETHEUS,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        **_extras(panel),
    }


def _defaults(panel: Panel) -> Object:
    defaults: Object = {"unit": panel.unit}
    if panel.limits is not None:
        defaults |= dict(zip(("min", "max"), panel.limits, strict=True))
    if panel.wrong_from is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.wrong_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.stacked:
        defaults["custom"] = {"fillOpacity": 30, "stacking": {"mode": "normal", "group": "A"}}
    return defaults


def _extras(panel: Panel) -> Object:
    match panel.kind:
        case PanelKind.GRAPH:
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"options": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}}
        case PanelKind.TABLE:
            hidden = {"excludeByName": {"Time": True, "Value": True}}
            return {"transformations": [{"id": "organize", "options": hidden}]}
        case _:
            return {}


def _lines(value: Any, indent: str) -> Iterator[str]:
    short = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(short) <= WIDTH or not isinstance(value, Mapping | list) or not value:
        yield short
        return
    if isinstance(value, Mapping):
        items = [
            (f"{json.dumps(key)}: ", each) for key, each in cast("Mapping[str, Any]", value).items()
        ]
        first, last = "{", "}"
    else:
        items, first, last = [("", each) for each in cast("list[Any]", value)], "[", "]"
    yield first
    for index, (key, each) in enumerate(items):
        lines = list(_lines(each, f"{indent}  {key}"))
        lines[-1] += "," if index < len(items) - 1 else ""
        yield f"  {key}{lines[0]}"
        yield from (f"  {line}" for line in lines[1:])
    yield last
