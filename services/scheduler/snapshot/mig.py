"""How the labels of nodes ask for their GPUs to be divided, as the engine's view.

A file of MIG configurations is parsed once per revision of its ConfigMap, and a node's
configuration is resolved again only when something that it depends on has changed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from libs.contracts.commands import GpuGeometry
from libs.contracts.facts import Facts, Gpu
from libs.contracts.gpu_forms import UUID
from libs.contracts.node import MIG_CONFIG_LABEL
from libs.contracts.reports import Report
from libs.contracts.words import excerpt
from libs.policy.mig.config import CONFIG_KEY, DEFAULT_CONFIG, MigConfigFile
from libs.policy.mig.defaults import default_config, may_exist
from libs.policy.mig.geometry import expected_geometry, is_applied, mig_digest, remarks
from libs.policy.mig.parsing import parse_config
from libs.policy.mig.resolution import MigProblem, MigProblemCode, resolve
from libs.policy.owners import DEPLOY_OPERANDS, DEPLOY_PREFIX
from libs.policy.pool import Pool
from libs.rollout.views.machine import WantedMig
from services.scheduler.resources import ConfigMap, Node

MAX_GPUS: Final = 64
"""The most GPUs of a node that are divided."""

_SWITCHES: Final = (f"{DEPLOY_PREFIX}mig-manager", DEPLOY_OPERANDS)
"""Labels of a node; `false` leaves the division of its GPUs to others."""

_NOT_DESCRIBED: Final = (
    "the GPUs of the node are not reported, because spec.gfd.enabled of the policy is false: set it"
    " to true, or set spec.migManager.enabled to false"
)


class MigSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy says about the division of GPUs."""

    config_map: str = ""
    """Empty: the configurations that come with Sluice."""
    may_reboot: bool = False
    are_gpus_described: bool = True
    """The discovery agents report the GPUs."""


def mig_settings(pools: Iterable[Pool]) -> Mapping[str, MigSettings]:
    """Return the settings of each pool whose policy has the GPUs divided."""
    return {
        pool.key: MigSettings(
            config_map=pool.operands.mig_config,
            may_reboot=pool.operands.mig_may_reboot,
            are_gpus_described=pool.operands.gpu_labels,
        )
        for pool in pools
        if pool.operands.mig_manager
    }


ConfigFile = MigConfigFile | str
"""The file, or why there is none, for people."""


class ConfigFiles:
    """The files of MIG configurations in ConfigMaps."""

    def __init__(
        self,
        get: Callable[[str], ConfigMap | None],
        *,
        why_unreadable: Callable[[str], str],
        namespace: str,
    ) -> None:
        """`get` returns a ConfigMap by `namespace/name`; `why_unreadable` why there is none."""
        self._get = get
        self._why_unreadable = why_unreadable
        self._namespace = namespace
        self._parsed: dict[str, tuple[tuple[str, str], ConfigFile]] = {}

    def file(self, name: str) -> ConfigFile:
        """Return the file in this ConfigMap; without a name, the one that comes with Sluice."""
        if not name:
            return default_config()
        key = f"{self._namespace}/{name}"
        where = f"ConfigMap {key}"
        if reason := self._why_unreadable(key):
            return f"{where} cannot be read: {excerpt(reason)}"
        config_map = self._get(key)
        if config_map is None:
            self._parsed.pop(name, None)
            if name == DEFAULT_CONFIG:
                return default_config()
            return (
                f"{where} does not exist, which spec.migManager.config.name of the policy names:"
                f" create it, with the MIG configurations in its key {CONFIG_KEY}"
            )
        version = (config_map.metadata.uid, config_map.metadata.resource_version)
        known = self._parsed.get(name)
        if known is None or known[0] != version:
            known = self._parsed[name] = (version, _parse(where, config_map))
        return known[1]


def _parse(where: str, config_map: ConfigMap) -> ConfigFile:
    text = (config_map.data or {}).get(CONFIG_KEY)
    if text is None:
        return f"{where} has no key {CONFIG_KEY}: store the MIG configurations there"
    found = parse_config(text)
    if isinstance(found, MigConfigFile):
        return found
    first, *others = found
    more = f" (and {len(others)} more)" if others else ""
    return f"{CONFIG_KEY} of {where}: {first}{more}"


class _Request(NamedTuple):
    """What is wanted of which Node."""

    node_uid: str
    config: str
    settings: MigSettings
    file: ConfigFile


class _Answer(NamedTuple):
    request: _Request
    boot_id: str
    report: Report | None
    wanted: WantedMig


class WantedMigs:
    """The wanted division of each node's GPUs, as long as it has the label."""

    def __init__(self, files: ConfigFiles) -> None:
        self._files = files
        self._answers: dict[str, _Answer] = {}

    def of(
        self,
        node: Node,
        settings: MigSettings | None,
        *,
        report: Report | None,
        described: Facts | None,
    ) -> WantedMig | None:
        """Return what the label of a node asks for; None: its GPUs stay as they are.

        `settings` is None where the policy leaves them to others. `described` has the facts of
        `report` if that is of this boot of the node.
        """
        name, labels = node.metadata.name, node.metadata.labels
        config = labels.get(MIG_CONFIG_LABEL, "")
        if not config or settings is None or "false" in map(labels.get, _SWITCHES):
            self.forget(name)
            return None
        file = self._files.file(settings.config_map)
        request = _Request(node.metadata.uid, config, settings, file)
        boot_id, known = node.status.node_info.boot_id, self._answers.get(name)
        if known is not None and known[:3] == (request, boot_id, report):
            return known.wanted
        before = known.wanted if known is not None and known.request == request else None
        wanted = wanted_mig(config, settings, file, described, before)
        self._answers[name] = _Answer(request, boot_id, report, wanted)
        return wanted

    def forget(self, name: str) -> None:
        self._answers.pop(name, None)

    def users_of(self, config_map: str) -> list[str]:
        """Return the nodes whose configuration is in this ConfigMap."""
        return [
            name
            for name, answer in self._answers.items()
            if answer.request.settings.config_map == config_map
        ]


def wanted_mig(
    config: str,
    settings: MigSettings,
    file: ConfigFile,
    described: Facts | None,
    before: WantedMig | None = None,
) -> WantedMig:
    """Return how the GPUs are to be divided.

    While they are not known, the geometry is that of `before`, so that a reboot of a node under a
    lease does not lose it.
    """
    unknown = WantedMig(config=config, may_reboot=settings.may_reboot)
    if isinstance(file, str):
        return replace(unknown, error=file)
    missing = resolve(file, config, (), ())
    is_of_a_board = file is default_config() and may_exist(config)  # as its driver will say
    if isinstance(missing, MigProblem) and not is_of_a_board:
        return replace(unknown, error=str(missing))
    if not settings.are_gpus_described:
        return replace(unknown, error=_NOT_DESCRIBED)
    if described is None or not described.gpus:
        return unknown if before is None or before.error else replace(before, applied=None)
    gpus = described.gpus
    if problem := _unusable(gpus):
        return replace(unknown, error=problem)
    geometry = _geometry(file, config, described)
    if isinstance(geometry, MigProblem):
        return replace(unknown, error=str(geometry))
    applied = is_applied(geometry, gpus)
    modules = () if described.kernel is None else described.kernel.modules
    found = () if applied else remarks(geometry, gpus, modules=modules)
    return replace(
        unknown,
        digest=mig_digest(expected_geometry(geometry, gpus)),
        gpus=geometry,
        applied=applied,
        remark="; ".join(f"{each.problem}: {each.remedy}" for each in found),
    )


def _unusable(gpus: Sequence[Gpu]) -> str:
    """Return why no command can name these GPUs; empty if one can."""
    if len(gpus) > MAX_GPUS:
        return f"the discovery agent reports {len(gpus)} GPUs, more than the {MAX_GPUS} of a node"
    nameless = next((gpu for gpu in gpus if not UUID.fullmatch(gpu.uuid)), None)
    if nameless is None:
        return ""
    return (
        f"the UUID of GPU {nameless.index} is not known: see the log of the discovery agent of this"
        " node"
    )


def _geometry(
    file: MigConfigFile, config: str, described: Facts
) -> tuple[GpuGeometry, ...] | MigProblem:
    gpus, pci, boards = described.gpus or (), described.pci or (), described.mig_boards or ()
    found = resolve(file, config, gpus, pci, boards)
    if not isinstance(found, MigProblem) or found.code is not MigProblemCode.FAILED_GPU:
        return found
    # A GPU that fails needs nothing if it was divided as wanted before.
    healthy = [replace(gpu, problem=None) for gpu in gpus]
    divided = resolve(file, config, healthy, pci, boards)
    return divided if not isinstance(divided, MigProblem) and is_applied(divided, gpus) else found
