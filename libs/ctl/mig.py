"""How the GPUs of nodes are to be divided, how they are, and asking for another division. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from libs.contracts.device import DeviceMig
from libs.contracts.node import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from libs.ctl.cluster import Device
from libs.ctl.edits import Edit
from libs.ctl.failures import ExitCode, Failure
from libs.ctl.field_owners import Field, owner_of, refuse_to_take
from libs.kube.views import Metadata

PRESENT = "nvidia.com/gpu.present=true"
_SWITCHES = ("nvidia.com/gpu.deploy.mig-manager", "nvidia.com/gpu.deploy.operands")
"""Labels of a Node; `false` leaves the division of its GPUs to others."""
_LABEL = Field(path=("metadata", "labels", MIG_CONFIG_LABEL))
_CONFIG = re.compile("(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
"""What can be the value of a label, and is not empty."""


class MigNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with GPUs: what its label asks for, and what is there."""

    node: str
    asked: str
    """The configuration that the label names; empty: the GPUs stay as they are."""
    state: str
    """The public label about it; empty: nothing is under way, or MIG is left to others."""
    left_alone: bool
    there: dict[int, str]
    """How each GPU is divided, by its index."""


def mig_nodes(nodes: Iterable[Metadata], devices: Iterable[Device]) -> tuple[MigNode, ...]:
    """Return the nodes by name."""
    there: dict[str, dict[int, str]] = {}
    for device in devices:
        divided = describe_division(device.status.mig)
        there.setdefault(device.spec.node, {})[device.spec.index] = divided
    found = (_mig_node(node, there.get(node.name, {})) for node in nodes)
    return tuple(sorted(found, key=lambda each: each.node))


def _mig_node(node: Metadata, there: Mapping[int, str]) -> MigNode:
    return MigNode(
        node=node.name,
        asked=node.labels.get(MIG_CONFIG_LABEL, ""),
        state=node.labels.get(MIG_STATE_LABEL, ""),
        left_alone=_is_left_alone(node),
        there=dict(sorted(there.items())),
    )


def _is_left_alone(node: Metadata) -> bool:
    return any(node.labels.get(switch) == "false" for switch in _SWITCHES)


def describe_division(mig: DeviceMig | None) -> str:
    """Return how a GPU is divided: `7 x 1g.10gb`, or why it is not."""
    if mig is None:
        return "not reported"
    if not mig.capable:
        return "has no MIG"
    profiles = Counter(each.profile or "unknown profile" for each in mig.devices)
    divided = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items()))
    text = divided or ("MIG without devices" if mig.mode == "Enabled" else "not divided")
    pending = mig.pending if mig.pending not in ("", mig.mode) else ""
    return f"{text} (MIG {pending.lower()} after a reset)" if pending else text


def summary(there: Mapping[int, str]) -> str:
    """Return GPUs that are divided alike together: `0-3: 7 x 1g.10gb; 4: not divided`."""
    alike: dict[str, list[int]] = {}
    if not there:
        return ""
    for index, text in there.items():
        alike.setdefault(text, []).append(index)
    if len(alike) == 1:
        return f"all {len(there)}: {next(iter(alike))}" if len(there) > 1 else next(iter(alike))
    return "; ".join(f"{_ranges(indices)}: {text}" for text, indices in alike.items())


def _ranges(indices: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def check_config(config: str) -> None:
    """Refuse what cannot be the name of a configuration."""
    if not _CONFIG.fullmatch(config):
        raise Failure(
            ExitCode.WRONG_ARGUMENTS,
            f"{config!r} cannot be the name of a MIG configuration, which is the value of a label:"
            " up to 63 letters, digits, '-', '_' and '.'; `sluice mig clear` asks for none",
        )


def ask_for(node: Metadata, config: str, *, force: bool = False) -> Edit:
    """Ask for a configuration; an empty one lets the GPUs stay as they are.

    A label that a program applies is taken by force only. One that was written once, by the kubelet
    or a GPU Operator as it met the node, is not written again.
    """
    name, before = node.name, node.labels.get(MIG_CONFIG_LABEL, "")
    if before == config:
        asked = f"already asks for {config}" if config else "asks for no division"
        return Edit(done=f"{name} {asked}; unchanged")
    if config and _is_left_alone(node):
        raise Failure(
            ExitCode.REFUSED,
            f"Sluice leaves the division of the GPUs of {name} to others, because its label"
            f" {' or '.join(_SWITCHES)} is false",
        )
    owner, wanted = owner_of(node, _LABEL), config or "none"
    if owner is not None and owner.applies and not force:
        raise refuse_to_take(owner, f"Node {name}", _LABEL, wanted)
    taken = f". {owner.way_back(_LABEL, wanted)}" if owner and owner.applies else ""
    patch = {"metadata": {"labels": {MIG_CONFIG_LABEL: config or None}}}
    if not config:
        return Edit(
            done=f"{name} asks for no division any more; its GPUs stay as they are{taken}",
            patch=patch,
        )
    return Edit(
        done=f"{name} asks for {config}; `sluice mig show {name}` tells how far it is{taken}",
        patch=patch,
        risk=f"pods with GPUs on {name} are evicted within the budget, and its GPUs are divided as"
        f" {config}",
    )
