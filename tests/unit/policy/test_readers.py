"""What is rendered of policies, or kept of them in pools and operands, is read by a program."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from libs.bus.connect import NatsSettings
from libs.contracts.identities import Writer
from libs.policy.kinds.strategy import StrategySpec
from libs.policy.kinds.upgrade_policy import (
    AutoUpgradePolicy,
    Drain,
    PodDeletion,
    WaitForCompletion,
)
from libs.policy.render.agents import AGENTS
from libs.policy.wanted import operands_of
from tests.unit.policy.situations import SITUATIONS, env_of

ROOT = Path(__file__).parents[3]


def attributes_read(*folders: str) -> frozenset[str]:
    """Return the names of all attributes that the code in these folders reads."""
    return frozenset[str]().union(*map(_attributes_read, folders))


@functools.cache
def _attributes_read(folder: str) -> frozenset[str]:
    return frozenset(
        part.attr
        for file in (ROOT / folder).rglob("*.py")
        for part in ast.walk(ast.parse(file.read_text()))
        if isinstance(part, ast.Attribute)
    )


OWNERS: dict[type[msgspec.Struct], set[str]] = {
    AutoUpgradePolicy: {"upgrade"},
    Drain: {"drain", "rules"},
    PodDeletion: {"pod_deletion", "rules"},
    WaitForCompletion: {"wait_for_completion"},
    StrategySpec: {"strategy"},
}
"""By which names the engine has the parts of a policy about upgrades."""
SELECTING = (StrategySpec, "pool")
"""Which pool's a strategy is, is decided before the engine has it."""


@pytest.mark.parametrize("struct", OWNERS)
def test_every_field_of_upgrades_and_strategies_is_read(struct: type[msgspec.Struct]) -> None:
    read = {
        part.attr
        for folder in ("libs/rollout", "services/scheduler")
        for file in (ROOT / folder).rglob("*.py")
        for part in ast.walk(ast.parse(file.read_text()))
        if isinstance(part, ast.Attribute)
        and OWNERS[struct] & set(re.findall(r"\w+", ast.unparse(part.value)))
    }
    fields = {field.name for field in msgspec.structs.fields(struct)}
    assert {each for each in fields if (struct, each) != SELECTING} <= read


def test_every_wanted_operand_is_read() -> None:
    read = attributes_read("services", "libs/policy/render", "libs/rollout")
    assert set(msgspec.structs.asdict(operands_of(None))) <= read


_FOLDERS = {Writer.PLUGIN: "driver/plugin", Writer.DRA: "driver/dra"}


def agent_variables() -> Iterator[tuple[str, str]]:
    """Yield the folder of each agent, and a variable of its pods that a policy may change."""
    identity = {"SLUICE_NODE", "SLUICE_POD_UID", "SLUICE_NAMESPACE"}
    for situation in SITUATIONS.values():
        for rendered in situation.rendering().objects:
            for agent in AGENTS:
                if rendered.name == agent.name:
                    (container,) = rendered.object["spec"]["template"]["spec"]["containers"]
                    yield from (
                        (_FOLDERS.get(agent.component, f"{agent.component}/node"), name)
                        for name in env_of(container).keys() - identity
                    )


@functools.cache
def settings_of(path: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the settings that code declares, and those that it reads: of `settings`, or of `self`
    within the settings themselves."""
    declared, read = set[str](), set[str]()
    start = ROOT / path
    for file in [start] if start.is_file() else start.rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text())):
            if isinstance(part, ast.Attribute) and _owner(part) == "settings":
                read.add(part.attr)
            if isinstance(part, ast.ClassDef) and part.name.endswith(("Settings", "Credentials")):
                fields = [each for each in part.body if isinstance(each, ast.AnnAssign)]
                declared |= {each.target.id for each in fields if isinstance(each.target, ast.Name)}
                inside = [each for each in ast.walk(part) if isinstance(each, ast.Attribute)]
                read |= {each.attr for each in inside if _owner(each) == "self"}
    return frozenset(declared), frozenset(read)


def _owner(attribute: ast.Attribute) -> str:
    of = attribute.value
    name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
    return name.lstrip("_")


@pytest.mark.parametrize(("folder", "variable"), sorted(set(agent_variables())))
def test_every_variable_of_an_agent_is_a_setting_that_is_read(folder: str, variable: str) -> None:
    prefix, _, name = variable.partition("_")
    assert prefix == "SLUICE"
    setting = name.lower()
    if setting.startswith("nats_"):
        assert setting.removeprefix("nats_") in NatsSettings.__struct_fields__
        return
    own, shared, bus = map(
        settings_of, (f"services/{folder}", "services/agent_role.py", "libs/bus")
    )
    assert setting in own[0] | shared[0] | bus[0]
    assert setting in own[1] | shared[1] | bus[1]
