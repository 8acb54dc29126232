"""What a switch of a policy changes in the rendered objects and conditions."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from libs.policy.readiness import Observation
from libs.policy.render.operands import render_operands
from libs.policy.status import policy_statuses
from libs.policy.wanted import operands_of
from services.discovery.cluster.operand_labels import OPERAND_KEYS, operands, pauses
from tests.unit.policy.fields import put
from tests.unit.policy.situations import (
    FILES,
    SETTINGS,
    UBUNTU,
    Object,
    Situation,
    env_of,
    without_digests,
)

HANDLERS = ("nvidia", "nvidia-cdi")
_NAMING = ("Accepted", "MissingOperands")
Facts = Mapping[str, Any]
"""What there is, by name: objects, containers, variables, and what conditions say."""


def switched(objects: Sequence[Object], path: str, value: bool) -> list[Object]:
    """Return policies of which the last one has a switch in this position."""
    given = msgspec.json.decode(msgspec.json.encode(objects))
    put(given[-1]["spec"], path, value)
    return given


def facts(objects: Sequence[Object]) -> Facts:
    situation = Situation(objects, [UBUNTU])
    pools, placement = situation.pools(), situation.placement()
    rendering = render_operands(pools, placement, SETTINGS, config_maps=FILES, handlers=HANDLERS)
    found: dict[str, Any] = {}
    for rendered in rendering.objects:
        name = "driver" if rendered.driver else rendered.name
        found[f"{rendered.object['kind']} {name}"] = True
        if rendered.object["kind"] == "DaemonSet":
            template = rendered.object["spec"]["template"]
            if rendered.driver:
                template = without_digests(rendered.object)
            for container in template["spec"]["containers"]:
                found[f"{name} container {container['name']}"] = True
                variables = env_of(container)
                found |= {f"{name} {key}": value for key, value in variables.items()}
    for key in operands(UBUNTU.labels, pools.cluster):
        found[f"label {key}"] = True
    for key in pauses(dict.fromkeys(OPERAND_KEYS, "true"), True, pools.cluster):
        found[f"pause {key}"] = True
    found |= {f"operands {name}": each for name, each in _operands(pools.cluster).items()}
    for status in policy_statuses(pools, placement, rendering, Observation()):
        for each in status.conditions:
            if each.type in _NAMING and status.kind == objects[-1]["kind"]:
                found[each.type] = each.message
    return found


def _operands(cluster: Any) -> dict[str, Any]:
    return msgspec.structs.asdict(operands_of(cluster))


def changes(objects: Sequence[Object], path: str) -> dict[str, tuple[Any, Any]]:
    """Return what differs between the positions of a switch: its value when off, and when on."""
    off, on = (facts(switched(objects, path, value)) for value in (False, True))
    names = [name for name in sorted({*off, *on}) if off.get(name) != on.get(name)]
    whole = tuple(f"{name.split()[1]} " for name in names if name.startswith("DaemonSet "))
    return {
        name: (off.get(name), on.get(name)) for name in names if not name.startswith(whole or "/")
    }
