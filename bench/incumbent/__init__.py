"""The incumbent itself beside our services: one upgrade each, on a real control plane."""

from bench.report import BenchReport

TITLE = "one upgrade by the upgrade library of March 2025 and by ours, on a real control plane"
NODES = 20


async def run(report: BenchReport, *, nodes: int = NODES) -> None:
    """Measure both columns, or say what is missing."""
    # Not at the top: the world and the fleet are imported where no service runs.
    from bench.incumbent.comparison import measure

    await measure(report, nodes)
