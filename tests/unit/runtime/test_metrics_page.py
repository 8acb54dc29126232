"""docs/metrics.md names every metric that the code defines, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.telemetry.exposition import LATE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/metrics.md").read_text()
COUNTERS = {"counter", "Counter", "CounterMetricFamily"}
TYPES = {*COUNTERS, "gauge", "histogram", "Gauge", "Histogram", "GaugeMetricFamily", "family"}
FAMILY = "_Family"
"""A total over GPUs, exported by node and by pool."""
OURS = re.compile(r"(sluice|gpu_operator)_[a-z_.+\[\]-]+")


def defined() -> dict[str, str]:
    """Return, by place in the code, a pattern of the names of each metric that is defined there."""
    paths = [*(ROOT / "libs").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    sources = {path: path.read_text() for path in sorted(paths) if "testing" not in path.parts}
    return {
        f"{path.relative_to(ROOT)}:{line}": pattern
        for path, source in sources.items()
        if OURS.search(source) or FAMILY in source  # parsing all files takes seconds
        for line, pattern in _defined_in(ast.parse(source))
    }


def _defined_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        pattern = _pattern(node.args[0])
        if name == FAMILY:
            yield node.lineno, f"sluice_node_{pattern}"
        elif name in TYPES and OURS.fullmatch(pattern) and pattern != _ANY_FAMILY:
            suffix = "_total" if name in COUNTERS and not pattern.endswith("_total") else ""
            yield node.lineno, f"{pattern}{suffix}"


_PART = "[a-z_]+"
_ANY_FAMILY = f"sluice_{_PART}_{_PART}"


def _pattern(name: ast.expr) -> str:
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        return name.value
    if isinstance(name, ast.JoinedStr):
        return "".join(_PART if isinstance(each, ast.FormattedValue) else _pattern(each)
                       for each in name.values)  # fmt: skip
    return ""


DEFINED = defined()
DOCUMENTED = frozenset(re.findall(r"`((?:sluice|gpu_operator)_[a-z_]+)(?:\{[^`]*)?`", PAGE))


def test_the_code_defines_metrics() -> None:
    assert len(DEFINED) > 60
    assert "sluice_scheduler_drained_seconds" in DEFINED.values()
    assert "sluice_telemetry_batches_total" in DEFINED.values()


@pytest.mark.parametrize("place", DEFINED)
def test_each_metric_is_on_the_page(place: str) -> None:
    pattern = DEFINED[place]
    assert any(re.fullmatch(pattern, name) for name in DOCUMENTED), f"{place}: {pattern}"


def test_the_page_names_no_metric_that_does_not_exist() -> None:
    of_node_status = re.compile("gpu_operator_(node_|nvidia_pci_)[a-z_]+")
    patterns = [*map(re.compile, (*DEFINED.values(), LATE)), of_node_status]
    unknown = [name for name in DOCUMENTED if not any(each.fullmatch(name) for each in patterns)]
    assert unknown == []
