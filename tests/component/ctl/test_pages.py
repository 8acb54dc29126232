"""Each `sluice` command in the pages for operators runs; other commands say what they need."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.contracts.events import GrantEvent, RolloutEvent
from libs.contracts.queries import QueryVerb
from libs.ctl.failures import ExitCode
from tests.component.ctl.operator_fleet import make_fleet
from tests.component.ctl.test_queries import Scheduler, step
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    OLD_VERSION,
    POOL,
    World,
    halted,
    make_world,
)

PAGES = ("README.md", "docs/demo.md", "docs/upgrade-day.md", "docs/troubleshooting.md")
OBSERVED = "docs/migrate.md"
_BLOCK = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(sluice [^`]+)`")
_INDENTED = re.compile(r"^    (?:\$ )?(sluice .*)$", re.MULTILINE)
_NEEDS = re.compile(r"# needs a (?:cluster|GPU|checkout)")


def commands(page: str) -> list[str]:
    """Return the commands of a page, each once."""
    text = Path(page).read_text()
    spans = (span for span in _SPAN.findall(_BLOCK.sub("", text)))
    found = [*_of_blocks(text), *spans, *_INDENTED.findall(text)]
    return list(dict.fromkeys(each.partition(" #")[0].strip() for each in found))


def _of_blocks(text: str) -> Iterator[str]:
    """Yield the lines of blocks that run; fail for one that neither runs nor says what it needs."""
    for language, block in _BLOCK.findall(text):
        if language == "python":
            continue
        assert language == "sh"
        lines = [line.strip() for line in block.splitlines()]
        if _NEEDS.match(lines[0]):
            continue
        assert all(line.startswith("sluice ") for line in lines), block
        yield from lines


def arguments(command: str) -> list[str]:
    return shlex.split(command.replace("NODE", "node-7"))[1:]


async def ready(world: World) -> None:
    """Create a halted rollout, its nodes, and a scheduler that answers."""
    await world.add_rollout(**halted("u1", "u2"))
    await world.add_node("node-7", state="upgrade-failed")
    for name in ("node-1", "node-2", "node-4"):
        await world.add_node(name)
    await world.add_policy(OLD_VERSION)
    scheduler = Scheduler(POOL)
    await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
    nodes = ("node-1", "node-2", "node-4", "node-7")
    grant = GrantEvent(pool=POOL, target=NEW, epoch=1, nodes=nodes)
    began = RolloutEvent(pool=POOL, target=NEW, before="Planned", after="Advancing")
    await world.publish(
        (began, "the rollout begins", ""), (grant, "granted", ""), *map(step, nodes)
    )


@pytest.mark.parametrize("page", PAGES)
async def test_each_command_of_a_page_runs(page: str, tmp_path: Path) -> None:
    found = commands(page)
    assert len(found) >= 4
    async with make_world(tmp_path, nats=True) as world:
        await ready(world)
        for command in found:
            if "forget" in command:  # `adopt` is still waiting on the same node
                await world.annotate("node-4", **{"sluice.dev/request": ""})
            given = command.replace("policy.yaml", world.policy_file(NEW_VERSION))
            ended = await world.run(*arguments(given))
            is_fault = arguments(command)[0] == "doctor"  # the rollout is halted
            code = ExitCode.FAULT_FOUND if is_fault else ExitCode.DONE
            assert (ended.code, ended.err) == (code, ""), command


async def test_each_command_of_migrate_runs_beside_an_operator(tmp_path: Path) -> None:
    found = commands(OBSERVED)
    assert len(found) >= 4
    async with make_fleet(tmp_path) as fleet:
        await fleet.add_gpu_node("node-7", state="upgrade-required", revision="old")
        await fleet.finish()
        before = len(fleet.server.journal)
        for command in found:
            ended = await fleet.run(*arguments(command))
            assert (ended.code, ended.err) == (ExitCode.DONE, ""), command
        assert len(fleet.server.journal) == before


def test_a_block_that_says_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="helm"):
        list(_of_blocks("```sh\nhelm install\n```\n"))
