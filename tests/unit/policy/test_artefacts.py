"""The ConfigMap of artefacts: what it names, and what is wrong with it."""

import pytest

from libs.policy.artefacts import (
    DEFAULT_FOLDER,
    NO_ARTEFACTS,
    Artefact,
    ArtefactFile,
    parse_artefacts,
    wanted_artefact,
)
from libs.policy.variants import Variant
from libs.policy.wanted import InstallMethod, WantedDriver

UBUNTU = Variant(system="ubuntu", version="24.04", architecture="amd64")
DRIVER = WantedDriver(method=InstallMethod.HOST, version="580.95.05")
KEY, CUDA_KEY = "driver-580.95.05-ubuntu24.04-amd64", "cuda-13.0-ubuntu24.04-amd64"
ONE, TWO, THREE = (each * 64 for each in "123")
TEXT = f"# from our mirror\nsha256:{ONE} run a.run\n\nsha256:{TWO} tar modules-6.8.tar.xz\n"


def test_an_artefact_is_a_list_of_files() -> None:
    found = parse_artefacts({"folder": "/srv/drivers/", KEY: TEXT, "notes": "ours"})
    assert (found.folder, found.problems, list(found.named)) == ("/srv/drivers", {}, [KEY])
    assert found.named[KEY].files == (
        ArtefactFile(sha256=ONE, kind="run", name="a.run"),
        ArtefactFile(sha256=TWO, kind="tar", name="modules-6.8.tar.xz"),
    )
    assert wanted_artefact(found, DRIVER, UBUNTU) == found.named[KEY]
    assert parse_artefacts({}).folder == DEFAULT_FOLDER


def test_a_digest_names_the_content_and_not_the_names() -> None:
    def digest(*files: tuple[str, str, str]) -> str:
        return Artefact(
            tuple(ArtefactFile(sha256=each[0], kind=each[1], name=each[2]) for each in files)
        ).digest

    first = digest((ONE, "run", "a"), (TWO, "tar", "b"))
    assert first == "sha256:ba4db5b3f91d356d7e013a3261acfd1df01d78c6c1889083f58be80a3911264a"
    assert first == digest((ONE, "run", "other"), (TWO, "tar", "b"))
    assert first != digest((ONE, "deb", "a"), (TWO, "tar", "b"))
    assert first != digest((THREE, "run", "a"), (TWO, "tar", "b"))
    assert first != digest((TWO, "tar", "b"), (ONE, "run", "a"))


def test_cuda_is_a_part_of_the_artefact_and_found_by_the_digest_of_both() -> None:
    other = "cuda-13.0-ubuntu22.04-amd64"
    found = parse_artefacts(
        {
            KEY: TEXT,
            CUDA_KEY: f"sha256:{THREE} deb cudart.deb",
            other: f"sha256:{ONE} deb other.deb",
        }
    )
    both = wanted_artefact(
        found, WantedDriver(method=InstallMethod.HOST, version="580.95.05", cuda="13.0"), UBUNTU
    )
    assert isinstance(both, Artefact)
    assert [each.name for each in both.files] == ["a.run", "modules-6.8.tar.xz", "cudart.deb"]
    assert found.find(both.digest) == both
    assert found.find(found.named[KEY].digest) == found.named[KEY]
    assert found.find((found.named[KEY] + found.named[other]).digest) is None
    assert found.find(found.named[CUDA_KEY].digest) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it names no file"),
        (f"sha256:{ONE} run", "line 1 is not of the form"),
        (f"{ONE} run a.run", "line 1 is not of the form"),
        (f"sha256:{ONE[1:]} run a.run", "line 1 is not of the form"),
        (f"#\nsha256:{ONE} zip a.zip", "line 2: zip is no kind"),
        (f"sha256:{ONE} run ../a.run", "is no name of a file"),
        (f"sha256:{ONE} run .a.run", "is no name of a file"),
        (f"sha256:{ONE} run a.run\n" * 101, "more than 100 files"),
    ],
)
def test_a_text_with_an_error_is_refused_and_spoils_no_other(text: str, problem: str) -> None:
    found = parse_artefacts({KEY: text, CUDA_KEY: TEXT})
    assert problem in found.problems[KEY]
    assert list(found.named) == [CUDA_KEY]
    answer = wanted_artefact(found, DRIVER, UBUNTU)
    assert isinstance(answer, str)
    assert problem in answer
    assert f"key {KEY} of ConfigMap" in answer


@pytest.mark.parametrize("folder", ["srv", "/srv/../etc"])
def test_a_folder_that_is_no_absolute_path_is_refused(folder: str) -> None:
    answer = wanted_artefact(parse_artefacts({"folder": folder, KEY: TEXT}), DRIVER, UBUNTU)
    assert isinstance(answer, str)
    assert answer.startswith("key folder of ConfigMap sluice-driver-artefacts cannot be used")
    assert f"{folder} is no absolute path" in answer


def test_what_is_not_named_is_said_with_its_key() -> None:
    assert f"with the key {KEY}" in str(wanted_artefact(NO_ARTEFACTS, DRIVER, UBUNTU))
    assert f"names no artefact {KEY}: add" in str(
        wanted_artefact(parse_artefacts({}), DRIVER, UBUNTU)
    )
    without = WantedDriver(method=InstallMethod.HOST)
    assert "set spec.driver.version" in str(wanted_artefact(parse_artefacts({}), without, UBUNTU))
