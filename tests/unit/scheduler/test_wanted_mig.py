"""What the label of a node asks for: its policy's configurations, and what its GPUs are."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Facts, Kernel, Mig, MigBoard, MigKind
from libs.contracts.gpus import GpuProblem
from libs.contracts.identities import Writer
from libs.contracts.node import MIG_CONFIG_LABEL
from libs.contracts.reports import Report
from libs.policy.mig.defaults import default_config
from libs.policy.mig.geometry import found_geometry, mig_digest
from libs.rollout.views.machine import WantedMig
from services.scheduler.resources import ConfigMap, Node
from services.scheduler.snapshot import mig
from services.scheduler.snapshot.mig import ConfigFiles, MigSettings, WantedMigs, wanted_mig
from tests.builders import objects
from tests.builders.objects import seen
from tests.unit.policy.mig_gpus import A100, SEVEN, gpu, pci
from tests.unit.policy.situations import cluster_policy
from tests.unit.scheduler.test_pools import daemon_sets_of, member, pools_of

BUILT_IN = MigSettings()
POOL = "clusterpolicy-cluster-policy"
UNDIVIDED = Facts(gpus=(gpu(0), gpu(1)), pci=(pci(0), pci(1)))
DIVIDED = Facts(gpus=(gpu(0, profiles=SEVEN), gpu(1, profiles=SEVEN)), pci=(pci(0), pci(1)))
TEXT = "version: v1\nmig-configs:\n  ours:\n  - {devices: [0], mig-enabled: true,"
OURS = TEXT + ' mig-devices: {"1g.10gb": 7}}\n'
NAME = "layouts"


def wanted(config: str, facts: Facts | None = UNDIVIDED, **settings: Any) -> WantedMig:
    return wanted_mig(config, MigSettings(**settings), default_config(), facts)


def digest(facts: Facts) -> str:
    return mig_digest(found_geometry(facts.gpus or ()))


def node(*, config: str = "all-1g.10gb", boot: str = "b1", **labels: str) -> Node:
    labels = {MIG_CONFIG_LABEL: config, **{f"nvidia.com/{key}": labels[key] for key in labels}}
    return seen(Node, objects.node(labels=labels, boot=boot))


def report(facts: Facts) -> Report:
    return Report.of(facts, node="a", node_uid="u", boot_id="b1", component=Writer.DISCOVERY, at=1)


def config_map(text: str | None, revision: str = "1") -> ConfigMap:
    data = {"other": "x"} if text is None else {"config.yaml": text, "other": "x"}
    at = {"namespace": "ns", "uid": "u", "resourceVersion": revision}
    return seen(ConfigMap, objects.config_map(NAME, data, **at))


def config_files(**maps: ConfigMap) -> ConfigFiles:
    by_key = {f"ns/{name}": found for name, found in maps.items()}
    unreadable = {"ns/broken": "data: expected object"}
    return ConfigFiles(
        by_key.get, why_unreadable=lambda key: unreadable.get(key, ""), namespace="ns"
    )


# One node.


def test_a_geometry_that_the_gpus_do_not_have_yet() -> None:
    found = wanted("all-1g.10gb", may_reboot=True)
    assert [each.profiles for each in found.gpus] == [SEVEN, SEVEN]
    assert found.digest == digest(DIVIDED)
    assert (found.applied, found.may_reboot, found.error) == (False, True, "")


@pytest.mark.parametrize(
    ("config", "facts"), [("all-1g.10gb", DIVIDED), ("all-disabled", UNDIVIDED)]
)
def test_a_geometry_that_the_gpus_have(config: str, facts: Facts) -> None:
    found = wanted(config, facts)
    assert (found.applied, found.digest, found.error) == (True, digest(facts), "")


def test_gpus_that_the_configuration_leaves_alone_keep_what_they_have() -> None:
    file = ConfigFiles(
        {f"ns/{NAME}": config_map(OURS)}.get, why_unreadable=lambda _key: "", namespace="ns"
    ).file(NAME)
    half = Facts(gpus=(gpu(0), gpu(1, profiles=SEVEN)), pci=(pci(0), pci(1)))
    found = wanted_mig("ours", BUILT_IN, file, half)
    assert [each.index for each in found.gpus] == [0]
    assert found.digest == digest(DIVIDED)


@pytest.mark.parametrize("facts", [None, Facts(), Facts(gpus=())])
def test_while_the_gpus_are_not_known_nothing_is_said_about_them(facts: Facts | None) -> None:
    assert wanted("all-1g.10gb", facts) == WantedMig(config="all-1g.10gb")
    before = wanted("all-1g.10gb")
    kept = wanted_mig("all-1g.10gb", BUILT_IN, default_config(), facts, before)
    assert kept == replace(before, applied=None)


def test_a_name_that_only_the_driver_of_a_board_has_waits_until_the_board_is_known() -> None:
    kind = MigKind(name="1g.50gb", most=7, size=1, starts=tuple(range(7)))
    known = replace(UNDIVIDED, mig_boards=(MigBoard(gpus=(0, 1), kinds=(kind,)),))
    assert wanted("all-1g.50gb", None) == WantedMig(config="all-1g.50gb")
    assert [each.profiles for each in wanted("all-1g.50gb", known).gpus] == [("1g.50gb",) * 7] * 2
    assert "there is no MIG configuration" in wanted("all-1g.50gb", UNDIVIDED).error
    assert "there is no MIG configuration" in wanted("all-x", None).error


FAILING = replace(UNDIVIDED, gpus=(gpu(0, problem=GpuProblem.HUNG), gpu(1)))


@pytest.mark.parametrize(
    ("config", "facts", "settings", "error"),
    [
        ("all-9g", UNDIVIDED, {}, 'there is no MIG configuration "all-9g": use one of'),
        ("all-9g", None, {}, 'there is no MIG configuration "all-9g": use one of'),
        ("all-1g.5gb", UNDIVIDED, {}, "has no MIG profile 1g.5gb: it has 1g.10gb"),
        ("all-1g.10gb", FAILING, {}, "cannot be divided while it cannot be used"),
        ("all-1g.10gb", None, {"are_gpus_described": False}, "spec.gfd.enabled of the policy is"),
        ("all-1g.10gb", Facts(gpus=(gpu(uuid="GPU-\n"),)), {}, "UUID of GPU 0 is not"),
        ("all-1g.10gb", Facts(gpus=tuple(map(gpu, range(65)))), {}, "reports 65 GPUs, more than"),
    ],
)
def test_a_configuration_that_cannot_be_applied_is_one_clear_error(
    config: str, facts: Facts | None, settings: dict[str, Any], error: str
) -> None:
    found = wanted(config, facts, **settings)
    assert error in found.error
    assert (found.gpus, found.digest, found.applied) == ((), "", None)
    assert found.error.isprintable()


@pytest.mark.parametrize(
    "hostile",
    [
        {"name": "x\n" * 4096, "mig_capable": False},
        {"index": 2**53, "pci": "\0" * 4096, "compute_capability": (2**53, 0)},
        {"uuid": "GPU-" + "a" * 4096},
        {"migs": (Mig(uuid="", profile="9" * 4096),) * 100, "mig_mode": True},
        {"uuid": "GPU-1"},
    ],
)
@pytest.mark.parametrize("config", ["all-1g.10gb", "all-disabled", "all-enabled", "\n" * 63])
def test_what_an_agent_reports_stays_in_short_clean_words(
    config: str, hostile: dict[str, Any]
) -> None:
    facts = replace(UNDIVIDED, gpus=(gpu(0, **hostile), gpu(1)))
    found = wanted(config, facts)
    assert found.error.isprintable()
    assert len(found.error) < 400
    assert len(found.digest) in (0, 4, 32)
    assert {each.uuid for each in found.gpus} <= {"GPU-0", "GPU-1"}
    assert {name for each in found.gpus for name in each.profiles} <= {"1g.10gb"}


def test_a_gpu_that_fails_later_needs_no_other_division() -> None:
    first = replace(gpu(0, profiles=SEVEN), problem=GpuProblem.HUNG)
    facts = replace(DIVIDED, gpus=(first, gpu(1, profiles=SEVEN)))
    found = wanted("all-1g.10gb", facts)
    assert (found.applied, found.error, found.digest) == (True, "", digest(DIVIDED))


def test_what_people_should_know_is_said_before_it_is_applied() -> None:
    ampere = gpu(name="NVIDIA A100-SXM4-40GB", compute_capability=(8, 0))
    kernel = Kernel(release="6.8", modules=("nvidia", "nvidia_drm"))
    facts = Facts(gpus=(ampere,), pci=(pci(device=A100),), kernel=kernel)
    remark = wanted("all-1g.5gb", facts).remark
    assert "a reset may concern all GPUs of the node" in remark
    assert "nvidia_drm is loaded and prevents it" in remark
    assert wanted("all-disabled", facts).remark == wanted("all-1g.10gb").remark == ""


# The file.


def test_without_a_name_the_built_in_file_holds() -> None:
    assert config_files().file("") is default_config()
    assert config_files().file("default-mig-parted-config") is default_config()


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("gone", OURS, "ConfigMap ns/gone does not exist, which spec.migManager.config.name"),
        ("broken", OURS, "ConfigMap ns/broken cannot be read: data: expected object"),
        (NAME, None, "ConfigMap ns/layouts has no key config.yaml"),
        (
            NAME,
            TEXT,
            "of ConfigMap ns/layouts: the file (line 5, column 1) cannot be used: it is no YAML",
        ),
        (NAME, OURS.replace("devices:", "gpus:"), "(and 3 more)"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_error(
    name: str, text: str | None, error: str
) -> None:
    found = config_files(**{NAME: config_map(text)}).file(name)
    assert isinstance(found, str)
    assert error in found
    assert wanted_mig("ours", BUILT_IN, found, UNDIVIDED).error == found


def test_a_config_map_keeps_nothing_but_the_file() -> None:
    assert config_map(OURS).data == {"config.yaml": OURS}
    assert config_map(None).data is None


# What is computed again, and when.


class Counted:
    """The wanted division of one node, and how often what was computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.maps = {f"ns/{NAME}": config_map(OURS)}
        self.count = Counter[str]()
        for name in ("parse_config", "wanted_mig"):
            monkeypatch.setattr(mig, name, self._counted(name))
        files = ConfigFiles(self.maps.get, why_unreadable=lambda _key: "", namespace="ns")
        self.migs = WantedMigs(files)

    def _counted(self, name: str) -> Any:
        real = getattr(mig, name)

        def call(*args: Any) -> Any:
            self.count[name] += 1
            return real(*args)

        return call

    def ask(self, node: Node, reported: Report | None, name: str = NAME) -> WantedMig | None:
        settings = MigSettings(config_map=name)
        facts = None
        if reported is not None and reported.boot_id == node.status.node_info.boot_id:
            facts = reported.open()
        assert facts is None or isinstance(facts, Facts)
        return self.migs.of(node, settings, report=reported, described=facts)


def test_a_file_is_parsed_once_and_a_node_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world, ours, reported = Counted(monkeypatch), node(config="ours"), report(UNDIVIDED)
    first = world.ask(ours, reported)
    assert first is not None
    assert first.applied is False
    for _ in range(3):
        assert world.ask(node(config="ours"), reported) is first
    assert world.count == {"parse_config": 1, "wanted_mig": 1}
    world.ask(ours, report(DIVIDED))
    world.ask(node(config="none"), report(DIVIDED))
    assert world.count == {"parse_config": 1, "wanted_mig": 3}
    world.maps[f"ns/{NAME}"] = config_map(OURS, revision="2")
    world.ask(ours, reported)
    assert world.count == {"parse_config": 2, "wanted_mig": 4}
    assert world.migs.users_of(NAME) == ["a"]
    assert world.migs.users_of("other") == []


def test_a_reboot_keeps_the_geometry_and_forgets_whether_it_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, reported = Counted(monkeypatch), report(DIVIDED)
    before = world.ask(node(), reported, "")
    assert before is not None
    assert before.applied
    after = world.ask(node(boot="b2"), reported, "")
    assert after == replace(before, applied=None)
    other = world.ask(node(config="all-disabled", boot="b2"), reported, "")
    assert other == WantedMig(config="all-disabled")


@pytest.mark.parametrize(
    "ignored",
    [
        node(config=""),
        node(**{"gpu.deploy.mig-manager": "false"}),
        node(**{"gpu.deploy.operands": "false"}),
    ],
)
def test_nodes_whose_gpus_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, ignored: Node) -> None:
    world = Counted(monkeypatch)
    assert world.ask(node(), report(DIVIDED), "") is not None
    assert world.ask(ignored, report(DIVIDED), "") is None
    assert world.migs.users_of("") == []
    assert world.migs.of(node(), None, report=None, described=None) is None


# What policies say.


def test_the_settings_of_a_pool_are_those_of_its_policy() -> None:
    reboots = [{"name": "WITH_REBOOT", "value": "true"}]
    manager = {"config": {"name": NAME}, "env": reboots}
    policy = cluster_policy(migManager=manager, gfd={"enabled": False})
    found = pools_of([policy], [member("a")], daemon_sets_of(policy)).mig
    settings = MigSettings(config_map=NAME, may_reboot=True, are_gpus_described=False)
    assert found == {POOL: settings}
    off = cluster_policy(migManager={"enabled": False})
    assert pools_of([off], [member("a")], daemon_sets_of(off)).mig == {}
