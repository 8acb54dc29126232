"""Each command in docs/cli.md runs, and the page names all exit codes and options."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from libs.contracts.events import GrantEvent
from libs.contracts.queries import QueryVerb
from libs.ctl.failures import ExitCode
from libs.ctl.options import ACCESS_OPTIONS
from tests.component.ctl.terminal import in_terminal
from tests.component.ctl.test_queries import Scheduler, step
from tests.component.ctl.world import (
    NEW,
    NEW_VERSION,
    OLD_VERSION,
    POOL,
    halted,
    make_world,
    run_command,
)

PAGE = Path("docs/cli.md").read_text()
COMMANDS = re.findall(r"\| `sluice ([^`]+)` \|", PAGE)


async def test_each_command_of_the_page_runs(tmp_path: Path) -> None:
    assert len(COMMANDS) == 30
    async with make_world(tmp_path, nats=True) as world:
        await world.add_rollout(**halted("u1", "u2"))
        for name, state in (("node-2", ""), ("node-3", "upgrade-failed")):
            await world.add_node(name, state=state)
        await world.add_policy(OLD_VERSION)
        await world.add_node("node-4")
        scheduler = Scheduler(POOL)
        await world.answer({QueryVerb.STATUS: scheduler.status, QueryVerb.PLAN: scheduler.plan})
        grant = GrantEvent(pool=POOL, target=NEW, epoch=1, nodes=("node-2",))
        await world.publish((grant, "granted", ""), step("node-2"))
        for command in COMMANDS:
            if command == "watch":
                await _watch_and_quit(world.environ)
                continue
            if "forget" in command:  # `adopt` is still waiting on the same node
                await world.annotate("node-4", **{"sluice.dev/request": ""})
            given = command.replace("policy.yaml", world.policy_file(NEW_VERSION))
            ended = await world.run(*shlex.split(given))
            code = ExitCode.FAULT_FOUND if command == "doctor" else ExitCode.DONE  # it is halted
            assert (ended.code, ended.err) == (code, ""), command


async def _watch_and_quit(environ: Mapping[str, str]) -> None:
    """Run the verb that needs a terminal in one, until it shows the pool."""
    async with in_terminal("watch", environ=environ, width=160) as session:
        await session.shows(POOL, "waits: current")
        session.press("q")
        assert await session.end() == ExitCode.DONE


def test_the_page_has_all_exit_codes_and_options() -> None:
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    assert codes == list(ExitCode)
    listed = re.findall(r"^\| `(--[a-z-]+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [option[2:].replace("-", "_") for option, _ in listed] == [
        name for name, option in ACCESS_OPTIONS.items() if not option.__metadata__[0].hidden
    ]
    told = " ".join(run_command("status", "-h").out.split())
    for option, variable in listed:
        help_text = told.partition(f"{option} ")[2].partition(" --")[0]
        assert re.search(rf"(env var: |\$){variable}\b", help_text), help_text
