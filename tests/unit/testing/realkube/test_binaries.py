"""The search for a control plane: the order of locations, and the explanation."""

from dataclasses import astuple
from pathlib import Path

import pytest

from libs.testing.realkube.binaries import (
    ASSETS,
    NAMES,
    cache_folder,
    find_binaries,
)
from tests.unit.testing.realkube.builders import go_modules, program, programs


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return go_modules(tmp_path / "modules")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}


@pytest.fixture
def built(environ: dict[str, str], modules: Path) -> Path:
    """A control plane in the cache."""
    return programs(cache_folder(environ, modules=modules))


def test_the_assets_come_before_the_path_and_the_cache(
    tmp_path: Path, environ: dict[str, str], modules: Path, built: Path
) -> None:
    assets = programs(tmp_path / "assets")
    programs(tmp_path / "bin")
    search = find_binaries(environ | {ASSETS: str(assets)}, modules=modules)
    assert search.binaries is not None
    assert {*astuple(search.binaries)} == {assets / name for name in NAMES}
    assert search.explanation == f"real control plane from {ASSETS}={assets}"


def test_the_path_comes_before_the_cache_and_may_have_the_programs_in_several_folders(
    tmp_path: Path, environ: dict[str, str], modules: Path, built: Path
) -> None:
    programs(tmp_path / "bin", NAMES[:2])
    programs(tmp_path / "sbin", NAMES[2:])
    path = f"{tmp_path / 'bin'}:{tmp_path / 'sbin'}"
    search = find_binaries(environ | {"PATH": path}, modules=modules)
    assert search.binaries is not None
    assert search.binaries.etcd == tmp_path / "bin" / "etcd"
    assert search.binaries.kubectl == tmp_path / "sbin" / "kubectl"
    assert search.explanation == f"real control plane from the PATH; {ASSETS} is not set"


def test_the_cache_is_taken_where_there_are_no_assets_and_nothing_on_the_path(
    environ: dict[str, str], modules: Path, built: Path
) -> None:
    search = find_binaries(environ, modules=modules)
    assert search.binaries is not None
    assert search.binaries.kubectl == built / "kubectl"
    assert search.explanation == (
        f"real control plane from the cache {built}; {ASSETS} is not set; the PATH lacks all five"
    )


def test_incomplete_assets_are_named_and_skipped(
    tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    assets = programs(tmp_path / "assets", ["etcd", "kube-apiserver", "kubectl"])
    (assets / "kube-scheduler").write_text("not executable")
    programs(tmp_path / "bin")
    search = find_binaries(environ | {ASSETS: str(assets)}, modules=modules)
    assert search.binaries is not None
    assert search.binaries.etcd == tmp_path / "bin" / "etcd"
    assert search.explanation == (
        "real control plane from the PATH; "
        f"{ASSETS}={assets} lacks kube-controller-manager, kube-scheduler"
    )


@pytest.mark.parametrize("has_go", [True, False])
def test_a_search_without_result_reports_what_to_do(
    has_go: bool, tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    if has_go:
        program(tmp_path / "bin" / "go")
    what_to_do = (
        "Go is installed: run `make kube` to build it"
        if has_go
        else "there is no Go either: install Go and run `make kube`, or set KUBEBUILDER_ASSETS to "
        "a directory that has all five"
    )
    search = find_binaries(environ, modules=modules)
    assert search.binaries is None
    assert search.explanation == (
        f"no real control plane: {ASSETS} is not set; the PATH lacks all five; "
        f"there is no cache {cache_folder(environ, modules=modules)}; {what_to_do}"
    )


def test_the_environment_sets_the_folder_of_the_cache(
    tmp_path: Path, environ: dict[str, str], modules: Path
) -> None:
    in_home = cache_folder(environ, modules=modules)
    assert in_home.parent == tmp_path / "home" / ".cache" / "sluice" / "kube"
    in_xdg = cache_folder(environ | {"XDG_CACHE_HOME": "/elsewhere"}, modules=modules)
    assert in_xdg == Path("/elsewhere/sluice/kube") / in_home.name
    assert cache_folder(environ | {"XDG_CACHE_HOME": "relative"}, modules=modules) == in_home
