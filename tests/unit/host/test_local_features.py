"""Labels from the feature files of a machine: what is used, and what is refused and why."""

import os
from pathlib import Path

import pytest

from libs.contracts.facts import LocalFeatures
from libs.host.local_features import FOLDER, MAX_LABELS, PREFIX, local_features
from libs.host.tree import Tree
from tests.builders.machine_files import link, put

RESERVED = f"keys of kubernetes.io, k8s.io, nvidia.com, sluice.dev are not used, but for {PREFIX}"
NOW = 1_800_000_000.0
"""2027-01-15T08:00:00Z"""


def read(root: Path) -> LocalFeatures:
    return local_features(Tree(root), now=NOW)


def found(root: Path, text: str) -> dict[str, str]:
    """Return the labels of a file, none of which may be refused, without their prefix."""
    put(root, f"{FOLDER}/site", text)
    features = read(root)
    assert (features.refused, features.why) == (0, "")
    return {key.removeprefix(PREFIX): value for key, value in features.labels.items()}


def test_a_line_is_a_label(tmp_path: Path) -> None:
    text = f"# rack and room\nrack=b\n\n  room = \n{PREFIX}row=12\nfast\nempty=\n#no-label\n"
    put(tmp_path, f"{FOLDER}/site", text)
    features = read(tmp_path)
    names = {key.removeprefix(PREFIX): value for key, value in features.labels.items()}
    assert names == {"rack": "b", "row": "12", "fast": "true", "empty": ""}
    why = f"{FOLDER}/site: line 4: its key is no key of a label"
    assert (features.refused, features.why) == (1, why)


def test_a_vendors_line_is_a_label_of_the_vendors_domain(tmp_path: Path) -> None:
    text = "a.example/rack=b\nexample.com/fast\nfakekubernetes.io/x=1\n"
    assert found(tmp_path, text) == {
        "a.example/rack": "b",
        "example.com/fast": "true",
        "fakekubernetes.io/x": "1",
    }


def test_directives_leave_lines_out(tmp_path: Path) -> None:
    later, past = "2027-01-15T09:00:00+00:30", "2027-01-15T08:00:00Z"
    text = f"# +no-label\na\nb\n# +no-feature\nc\n# +expiry-time={later}\nd\n"
    assert found(tmp_path, f"{text}# +expiry-time={past}\ne\n") == {
        "b": "true",
        "c": "true",
        "d": "true",
    }


def test_later_files_override_earlier_ones_and_hidden_ones_are_ignored(tmp_path: Path) -> None:
    put(tmp_path, f"{FOLDER}/10", "# +expiry-time=2020-01-01T00:00:00Z\nx=1\n")
    put(tmp_path, f"{FOLDER}/20", "rack=a\nrow=1\n")
    put(tmp_path, f"{FOLDER}/30", "rack=b\n")
    put(tmp_path, f"{FOLDER}/.40", "rack=c\n")
    labels = {f"{PREFIX}rack": "b", f"{PREFIX}row": "1"}
    assert read(tmp_path) == LocalFeatures(labels=labels)


def test_without_files_there_are_no_labels(tmp_path: Path) -> None:
    assert read(tmp_path) == LocalFeatures()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nvidia.com/gpu.product=x", RESERVED),
        ("node-role.kubernetes.io/control-plane=", RESERVED),
        ("kubernetes.io/hostname=x", RESERVED),
        ("sluice.dev/driver=x", RESERVED),
        ("topology.k8s.io/zone=x", RESERVED),
        (f"{PREFIX}a/b=x", RESERVED),
        ("a.example/b/c=x", "its key is no key of a label"),
        ("A.example/b=x", "its key is no key of a label"),
        ("/b=x", "its key is no key of a label"),
        (f"{'a' * 254}/b=x", "its key is no key of a label"),
        ("a b=x", "its key is no key of a label"),
        (f"{'a' * 64}=x", "its key is no key of a label"),
        ("=x", "its key is no key of a label"),
        ("a=b=c", "its value is no value of a label"),
        (f"a={'x' * 4096}", "its value is no value of a label"),
        ("a=\x00", "its value is no value of a label"),
        ("a=@local.feature.x", "its value is no value of a label"),
        ("a=é", "its value is no value of a label"),
        ("a=\udcff", "it is not UTF-8"),
        ("# +expiry-time=tomorrow", "its time is not one of RFC 3339"),
        ("# +expiry-time=2027-01-15T08:00:00", "its time is not one of RFC 3339"),
        ("# +delete-everything", "its directive is unknown"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused(tmp_path: Path, line: str, why: str) -> None:
    put(tmp_path, f"{FOLDER}/site", f"good=1\n{line}\n")
    features = read(tmp_path)
    assert features.labels == {f"{PREFIX}good": "1"}
    assert (features.refused, features.why) == (1, f"{FOLDER}/site: line 2: {why}")


def test_a_file_that_is_none_is_refused_and_its_content_never_told(tmp_path: Path) -> None:
    put(tmp_path, "/etc/shadow", "root=secret\n")
    link(tmp_path, f"{FOLDER}/10", "/etc/shadow")
    os.mkfifo(tmp_path / FOLDER.lstrip("/") / "20")
    put(tmp_path, f"{FOLDER}/30", "a=1\n" + "#" * 65_536)
    put(tmp_path, f"{FOLDER}/40", "a b root:secret\n")
    put(tmp_path, f"{FOLDER}/50", "b=1\n")
    features = read(tmp_path)
    assert features.labels == {f"{PREFIX}b": "1"}
    assert (features.refused, features.why) == (4, f"{FOLDER}/10: it is not a regular file")
    assert b"secret" not in repr(features).encode()


def test_labels_lines_and_files_are_bounded(tmp_path: Path) -> None:
    put(tmp_path, f"{FOLDER}/00", "".join(f"a{number}\n" for number in range(2000)))
    for number in range(1, 100):
        put(tmp_path, f"{FOLDER}/{number:02}", "a1=x\n")
    features = read(tmp_path)
    assert (len(features.labels), features.labels[f"{PREFIX}a1"]) == (MAX_LABELS, "x")
    assert features.refused == 1000 - MAX_LABELS + 2
    assert features.why == f"{FOLDER}/00: line 65: there are more than 64 labels"
