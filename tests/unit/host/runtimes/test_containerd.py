import tomllib
from typing import Any

import pytest

from libs.host.runtimes import toml
from libs.host.runtimes.common import HANDLERS, NotConfigurable
from libs.host.runtimes.containerd import DROP_IN, IMPORT, MAIN, Layout, configure, merges

CRI_2 = "io.containerd.grpc.v1.cri"
CRI_3 = "io.containerd.cri.v1.runtime"
RUNC = "io.containerd.runc.v2"
OTHER = "/etc/containerd/conf.d/10-registry.toml"
PEOPLES = """\
# Written by hand: ask the platform team.
version = 2

root = '/data/containerd'  # a second disk

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.10"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "crun"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
        BinaryName = "/usr/bin/crun"
        SystemdCgroup = true
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]
      runtime_type = "io.containerd.kata.v2"
"""


def drop_in(text: str | None, other: str = "") -> dict[str, Any]:
    return tomllib.loads(configure(text, {OTHER: other} if other else {}).drop_in)


def test_handlers_are_aliases_of_the_default_runtime_and_cdi_is_on() -> None:
    made = drop_in(PEOPLES)
    crun = {
        "runtime_type": RUNC,
        "options": {"BinaryName": "/usr/bin/crun", "SystemdCgroup": True},
    }
    section = {
        "sandbox_image": "registry.example/pause:3.10",
        "containerd": {
            "default_runtime_name": "crun",
            "runtimes": {
                "crun": crun,
                "kata": {"runtime_type": "io.containerd.kata.v2"},
                "nvidia": crun,
                "nvidia-cdi": crun,
            },
        },
        "enable_cdi": True,
        "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"],
    }
    assert made == {"version": 2, "plugins": {CRI_2: section}}


def test_the_main_file_stays_but_for_its_imports() -> None:
    main = configure(PEOPLES, {}).main
    assert main == f'imports = ["{IMPORT}"]\n{PEOPLES}'
    assert configure(main, {}).main == main


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("imports = []", f'imports = ["{IMPORT}"]'),
        ('imports=["/a.toml"] # x', f'imports=["/a.toml", "{IMPORT}"] # x'),
        ('imports = [\n  # [x]\n  "/[a]",\n]', f'imports = [\n  # [x]\n  "/[a]",\n"{IMPORT}"]'),
        ('imports = ["/a" # ]\n]', f'imports = ["/a" # ]\n, "{IMPORT}"]'),
        ('imports = ["/etc/containerd/*"]', f'imports = ["/etc/containerd/*", "{IMPORT}"]'),
        ('imports = ["../containerd/conf.d/*"]', 'imports = ["../containerd/conf.d/*"]'),
        ('imports = ["/etc/containerd/conf.d/*"]', 'imports = ["/etc/containerd/conf.d/*"]'),
        (f'imports = ["{DROP_IN}"]', f'imports = ["{DROP_IN}"]'),
    ],
)
def test_imports_of_people_stay(imports: str, expected: str) -> None:
    text = 'version = 3\r\n{}\r\n[grpc]\r\naddress = "/run/c.sock"\r\n'
    assert configure(text.format(imports), {}).main == text.format(expected)


@pytest.mark.parametrize("version", [3, 4])
def test_containerd_2_needs_no_switch_for_cdi(version: int) -> None:
    runtimes = dict.fromkeys(("nvidia", "nvidia-cdi"), 0)
    made = drop_in(f"version = {version}\n")
    assert made == {
        "version": version,
        "plugins": {
            CRI_3: {"containerd": {"runtimes": {name: {"runtime_type": RUNC} for name in runtimes}}}
        },
    }
    off = f'version = 3\n[plugins."{CRI_3}"]\nenable_cdi = false\n'
    assert drop_in(off)["plugins"][CRI_3]["enable_cdi"] is True


def test_a_later_file_replaces_the_section_as_containerd_does() -> None:
    other = f'version = 2\n[plugins."{CRI_2}"]\ncdi_spec_dirs = ["/opt/cdi"]\n'
    section = drop_in(PEOPLES, other)["plugins"][CRI_2]
    assert "sandbox_image" not in section
    assert section["cdi_spec_dirs"] == ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]
    # Also by one without a value: containerd's own runtime is the default again.
    none = drop_in(PEOPLES, f'version = 2\n[plugins."{CRI_2}"]\n')["plugins"][CRI_2]
    assert set(none["containerd"]["runtimes"]) == {"runc", *HANDLERS}
    unrelated = 'version = 2\n[plugins."io.containerd.internal.v1.opt"]\npath = "/opt"\n'
    assert drop_in(PEOPLES, unrelated) == drop_in(PEOPLES)


def test_a_handler_that_is_there_stays_as_it_is() -> None:
    theirs = f'{PEOPLES}[plugins."{CRI_2}".containerd.runtimes.nvidia]\nruntime_type = "theirs"\n'
    runtimes = drop_in(theirs)["plugins"][CRI_2]["containerd"]["runtimes"]
    assert runtimes["nvidia"] == {"runtime_type": "theirs"}


def test_since_2_1_the_sections_of_all_files_are_one() -> None:
    runc = f'[plugins."{CRI_3}".containerd.runtimes.runc'
    main = f'version = 3\n[plugins."{CRI_3}"]\nids = [1]\n{runc}.options]\nSystemdCgroup = true\n'
    other = f'[plugins."{CRI_3}"]\nids = [2]\n{runc}]\nsandboxer = "x"\n'
    assert (merges("v2.1.0"), merges("2.4.2"), merges("v10.0.0-beta")) == (True, True, True)
    assert (merges("1.7.35"), merges("v2.0.9"), merges(""), merges("next")) == (False,) * 4
    text = configure(main, {OTHER: other}, Layout(merges=True)).drop_in
    expected = {"sandboxer": "x", "options": {"SystemdCgroup": True}}
    section = tomllib.loads(text)["plugins"][CRI_3]
    aliases = {name: {"runtime_type": RUNC, **expected} for name in HANDLERS}
    assert section["containerd"]["runtimes"] == {"runc": expected, **aliases}
    assert section["ids"] == [2]


def test_without_a_file_there_is_a_small_one() -> None:
    change = configure(None, {})
    assert change.main == f'imports = ["{IMPORT}"]\nversion = 2\n'
    (section,) = tomllib.loads(change.drop_in)["plugins"].values()
    # containerd 1.7 has no runtime of its own beside those that a file names.
    assert set(section["containerd"]["runtimes"]) == {"runc", *HANDLERS}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version = ", f"{MAIN} is not valid TOML"),
        ("a = " + "[" * 10_000, f"{MAIN} is not valid TOML"),
        (f"a = {'9' * 5000}", f"{MAIN} is not valid TOML"),
        (f"a = 0x{'f' * 5000}", f"{MAIN} is not valid TOML"),
        ("", "has version 1: write it in version 2, 3 or 4"),
        ("version = 5", "has version 5"),
        ("version = true", "has version True"),
        ("version = [2]", r"has version \[2\]"),
        ("version = 2.0", "has version 2.0"),
        ("version = 2\nimports = 3", "is no list of texts"),
        ("version = 2\nplugins = 3", f"plugins in {MAIN} is no table"),
        (f'version = 2\n[plugins."{CRI_2}"]\ncontainerd = 1', "containerd in"),
        ('version = 2\nimports = """x"""', "is no list of texts"),
        ('version = 2\n"imports" = ["/a"]', "cannot be changed safely"),
    ],
)
def test_what_cannot_be_understood_is_left_alone(text: str, problem: str) -> None:
    with pytest.raises(NotConfigurable, match=problem):
        configure(text, {})


def test_files_of_two_versions_are_left_alone() -> None:
    with pytest.raises(NotConfigurable, match=f"{OTHER} has another version"):
        configure(PEOPLES, {OTHER: "version = 3\n"})
    with pytest.raises(NotConfigurable, match=f"{OTHER} is not valid TOML"):
        configure(PEOPLES, {OTHER: "["})
    with pytest.raises(NotConfigurable, match=f"{OTHER} is not valid TOML"):
        configure(PEOPLES, {OTHER: f"a = [1, {{b = {'9' * 5000}}}]"})


def test_what_is_written_reads_back_the_same() -> None:
    table = tomllib.loads(
        'a = 1\nb = [1, "x", {c = 2, "d e" = [true]}]\nf = 1.5\ng = 1979-05-27T07:32:00Z\n'
        'h = 07:32:00\n"i.j" = "q\\"\\\\\\n\\u0001é"\n[k]\n[l.m]\nn = inf\n[[o]]\np = 1\n[[o]]\n'
    )
    assert tomllib.loads(toml.dumps(table)) == table
