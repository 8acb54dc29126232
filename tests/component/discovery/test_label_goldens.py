"""Every label of five machines under each MIG strategy; and the tables of GFD and NFD."""

import re
from pathlib import Path

import pytest

from libs.testing.nvml import NotBuilt, library
from tests.component.discovery import label_goldens
from tests.component.discovery.reference_labels import FEATURES, NVIDIA, OPERATOR, REFERENCE

PAGE = Path(__file__).parents[3] / "docs/compatibility.md"
_ROW = re.compile(r"\| `((?:nvidia\.com|feature\.node\.kubernetes\.io)/[^`]+)` \| (.*) \|")


@pytest.mark.parametrize("name", label_goldens.NAMES)
def test_the_labels_of_a_machine_equal_the_golden_file(name: str) -> None:
    try:
        library()
    except NotBuilt as error:
        pytest.skip(str(error))
    assert label_goldens.golden_text(name) == label_goldens.golden_path(name).read_text()


def test_every_golden_file_has_a_machine() -> None:
    assert {path.stem for path in label_goldens.GOLDEN.iterdir()} == set(label_goldens.NAMES)


# The tables of the reference.


def written() -> set[str]:
    """Return the keys of all labels in golden files."""
    texts = [path.read_text() for path in label_goldens.GOLDEN.iterdir()]
    lines = "".join(texts).splitlines()
    return {line.partition("=")[0] for line in lines if not line.startswith("#")}


def excepted() -> dict[str, str]:
    """Return the labels that the page says are not written, with the reasons."""
    section = PAGE.read_text().partition('<a id="not-written"></a>')[2].partition("<a id=")[0]
    return dict(_ROW.findall(section))


def form_of(label: str) -> re.Pattern[str]:
    """Return a pattern for the keys of a label; `<…>` stands for a varying part."""
    return re.compile(re.sub(r"<[a-z]+>", r"[^/]+?", re.escape(label)))


def test_each_label_of_the_reference_is_written_or_excepted_with_a_reason() -> None:
    keys, exceptions = written(), excepted()
    missing = [
        label
        for label in REFERENCE
        if label not in exceptions and not any(map(form_of(label).fullmatch, keys))
    ]
    assert missing == []
    assert all(exceptions.values())


def test_the_page_excepts_only_labels_of_the_reference_that_are_not_written() -> None:
    keys, exceptions = written(), excepted()
    assert set(exceptions) <= set(REFERENCE)
    assert [key for label in exceptions for key in keys if form_of(label).fullmatch(key)] == []


def test_no_label_is_written_that_the_reference_lacks() -> None:
    local = {f"{FEATURES}rack", f"{FEATURES}cooling"}
    forms = [form_of(label) for label in (*REFERENCE, *OPERATOR)]
    unknown = [key for key in written() - local if not any(form.fullmatch(key) for form in forms)]
    assert unknown == []


def test_the_reference_has_no_label_twice() -> None:
    assert len(set(REFERENCE)) == len(REFERENCE)
    assert {label.partition("/")[0] + "/" for label in REFERENCE} == {FEATURES, NVIDIA}
