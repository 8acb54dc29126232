"""Memory and CPU of processes, from /proc."""

import os
from pathlib import Path

from demo.output import ProcessCost, cost_lines, process_cost


def test_memory_and_cpu_are_read_despite_an_odd_process_name(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps_rollup").write_text(
        "5581-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  90000 kB\nPss:  51200 kB\n"
    )
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7" / "stat").write_text(
        f"7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 {3 * ticks} {2 * ticks} 0 0 20 0 1 0 100\n"
    )
    assert process_cost(7, proc=tmp_path) == ProcessCost(50.0, 5.0)


def test_the_cost_of_this_process_is_read_from_proc() -> None:
    assert process_cost(os.getpid()).memory_mib > 1


def test_the_table_ends_with_the_total() -> None:
    *_, last = cost_lines({"a": ProcessCost(10.0, 1.0), "b": ProcessCost(20.0, 2.0)}, seconds=30.0)
    assert last.startswith("  total ")
    assert last.endswith(" 30 MiB     3.0 s of CPU in 30 s: 0.10 of a core")
