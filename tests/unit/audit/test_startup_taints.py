"""I4 of taints: only the first `upgrade-done` of a node removes its startup taint, no other."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import NodeRecord
from libs.contracts.paths import taint_path
from tests.unit.audit.builders import JournalBuilder, messages

KEY = "example.com/starting"
FIRST = "begin_upgrade; prove; finish"
PATH = taint_path(KEY, "NoSchedule")
REMOVED = {f"{PATH}.key": (KEY, None), f"{PATH}.effect": ("NoSchedule", None)}
OTHERS = {f"{taint_path('nvidia.com/gpu', 'NoSchedule')}.key": ("nvidia.com/gpu", None)}
WHOLE_LIST = {"spec.taints": ([{"key": KEY, "effect": "NoSchedule"}], None)}
CHANGED = {f"{PATH}.value": ("x", "y")}


def found(story: str, changed: dict[str, Any], *, key: str = KEY, was_done: bool = False) -> Any:
    builder = JournalBuilder("n1")
    builder.play(story)
    if was_done:
        builder.records["n1"] = replace(_record(builder), was_done=True)
        builder.play("rewrite; prove; finish")
    last = builder.revisions[-1]
    builder.edit_last(changed={**last.changed, **changed})
    return messages(builder.journal(pools=(builder.facts(startup_taint=key),)), "I4")


def _record(builder: JournalBuilder) -> NodeRecord:
    return builder.records["n1"]


@pytest.mark.parametrize("changed", [REMOVED, WHOLE_LIST, {}])
def test_the_first_upgrade_done_may_remove_it(changed: dict[str, Any]) -> None:
    assert found(FIRST, changed) == []


@pytest.mark.parametrize(
    ("story", "changed", "options", "problem"),
    [
        (FIRST, OTHERS, {}, "nvidia.com/gpu, which is not the startup taint of its pool"),
        (FIRST, REMOVED, {"key": ""}, f"{KEY}, which is not the startup taint of its pool"),
        (FIRST, CHANGED, {}, f"{KEY}, instead of only removing it"),
        (
            "lease",
            OTHERS,
            {},
            "nvidia.com/gpu, which is not the startup taint of its pool",
        ),
        (
            "begin_upgrade",
            REMOVED,
            {},
            f"{KEY}, by a write that does not end an upgrade with upgrade-done",
        ),
        (
            "begin_upgrade; fail",
            REMOVED,
            {},
            f"{KEY}, by a write that does not end an upgrade with upgrade-done",
        ),
        (
            "begin_upgrade",
            REMOVED,
            {"was_done": True},
            f"{KEY}, although it had been upgrade-done before",
        ),
    ],
    ids=[
        "another taint",
        "no key",
        "changed",
        "another taint in flight",
        "in flight",
        "failed",
        "done before",
    ],
)
def test_every_other_change_is_a_violation(
    story: str, changed: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    assert found(story, changed, **options) == [f"n1: we changed its taint {problem}"]
