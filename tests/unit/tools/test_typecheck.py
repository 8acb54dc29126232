"""Types are checked again wherever the answer can have changed, and nowhere else."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.typecheck import check_changed

SETTINGS = """
[tool.pyright]
include = ["libs", "tests"]
exclude = ["**/*_pb2.py", "**/*_pb2.pyi"]
[[tool.pyright.executionEnvironments]]
root = "tests"
"""
FILES = {
    "libs/__init__.py": "",
    "libs/bottom.py": "import json\n",
    "libs/made_pb2.pyi": "x: int\n",
    "libs/middle.py": "if json:\n    from libs.bottom import (\n        thing,\n    )\n",
    "libs/package/__init__.py": "from .inner import *\n",
    "libs/package/inner.py": "from .. import middle\nimport libs.made_pb2\n",
    "libs/top.py": "def f():\n    import libs.package\n",
    "libs/round.py": "import libs.trip\n",
    "libs/trip.py": "import libs.round\n",
    "tests/beside.py": "import neighbour, from_root.module\n",
    "tests/neighbour.py": "",
    "tests/deep/er.py": "import neighbour\n",
    "tests/broken.py": "def (\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in {**FILES, "pyproject.toml": SETTINGS, "requirements.lock": ""}.items():
        write(tmp_path / name, text)
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


class Checker:
    """Records what it is asked to check."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.asked: list[Sequence[str]] = []

    def __call__(self, files: Sequence[str]) -> int:
        self.asked.append(files)
        return self.status


def checked(checkout: Path, status: int = 0) -> list[Sequence[str]]:
    checker = Checker(status)
    assert check_changed(checkout, checker) == status
    return [sorted(files) for files in checker.asked]


def test_everything_is_checked_once(checkout: Path) -> None:
    assert checked(checkout) == [[]], "no file named is every file"
    assert checked(checkout) == []
    checker = Checker()
    check_changed(checkout, checker, everything=True)
    assert checker.asked == [()]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            "libs/bottom.py",
            [
                "libs/bottom.py",
                "libs/middle.py",
                "libs/package/__init__.py",
                "libs/package/inner.py",
                "libs/top.py",
            ],
        ),
        (
            "libs/made_pb2.pyi",
            ["libs/package/__init__.py", "libs/package/inner.py", "libs/top.py"],
        ),
        ("libs/top.py", ["libs/top.py"]),
        ("libs/round.py", ["libs/round.py", "libs/trip.py"]),
        ("tests/neighbour.py", ["tests/beside.py", "tests/deep/er.py", "tests/neighbour.py"]),
        ("tests/broken.py", ["tests/broken.py"]),
        (
            "libs/json.py",
            [
                "libs/bottom.py",
                "libs/json.py",
                "libs/middle.py",
                "libs/package/__init__.py",
                "libs/package/inner.py",
                "libs/top.py",
            ],
        ),
        ("tests/from_root/module.py", ["tests/beside.py", "tests/from_root/module.py"]),
    ],
)
def test_a_change_reaches_all_that_import_the_file(
    checkout: Path, changed: str, expected: list[str]
) -> None:
    checked(checkout)
    write(checkout / changed, "y = 1\n")
    assert checked(checkout) == [expected]
    assert checked(checkout) == []


def test_a_removed_module_reaches_all_that_imported_it(checkout: Path) -> None:
    checked(checkout)
    (checkout / "libs/round.py").unlink()
    assert checked(checkout) == [["libs/trip.py"]]


@pytest.mark.parametrize("file", ["pyproject.toml", "requirements.lock"])
def test_settings_and_packages_are_of_every_file(checkout: Path, file: str) -> None:
    checked(checkout)
    with (checkout / file).open("a") as opened:
        opened.write("# other\n")
    assert checked(checkout) == [[]]


def test_what_failed_is_checked_again(checkout: Path) -> None:
    assert checked(checkout, 1) == [[]]
    assert checked(checkout) == [[]]
    write(checkout / "libs/top.py", "y = 1\n")
    assert checked(checkout, 1) == checked(checkout, 1) == [["libs/top.py"]]
    write(checkout / "libs/top.py", FILES["libs/top.py"])
    assert checked(checkout) == []
