"""What each verb does with an API server that refuses everything: one line and its exit code."""

from pathlib import Path

import pytest

from libs.ctl.failures import ExitCode
from libs.testing.apiserver.faults import Fault, RefuseRequest
from tests.component.ctl.world import OLD_VERSION, PERSON, make_world, rollout_status

VERBS = (
    "status",
    "status node-1",
    "why node-1",
    "gpus",
    "mig show",
    "mig set all-disabled node-1 --yes",
    "mig clear node-1",
    "upgrade pause",
    "upgrade start 590.48.01 --yes",
    "upgrade release 580.95.05 --yes",
    "upgrade retry node-1 --yes",
    "upgrade skip node-1",
    "lease take node-1 --reason x",
    "lease return node-1 --yes",
    "web --port 0",
)


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (401, ExitCode.NOT_ALLOWED),
        (403, ExitCode.NOT_ALLOWED),
        (410, ExitCode.NOT_REACHABLE),
        (429, ExitCode.NOT_REACHABLE),
        (500, ExitCode.NOT_REACHABLE),
        (503, ExitCode.NOT_REACHABLE),
    ],
)
async def test_a_refusal_is_one_line_and_its_exit_code(
    tmp_path: Path, refused: int, code: ExitCode
) -> None:
    async with make_world(tmp_path) as world:
        await world.add_rollout(**rollout_status())
        await world.add_node("node-1", state="upgrade-done")
        await world.add_policy(OLD_VERSION)
        world.server.faults.add(Fault(effect=RefuseRequest(refused), user=PERSON))
        for verb in VERBS:
            ended = await world.run(*verb.split())
            assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), (verb, ended)
            assert ended.err.startswith("sluice: Kubernetes: "), verb
