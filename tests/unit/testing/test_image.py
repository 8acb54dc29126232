"""Images: what the two ways to build one share, and what a layer depends on."""

import os
import tarfile
from io import BytesIO
from pathlib import Path

from libs.testing.image.assemble import compiler_environ
from libs.testing.image.context import config, write_product
from libs.testing.image.sbom import sbom
from libs.testing.oci import Files, folder_layer, write_image


def test_a_container_runs_a_module_as_an_ordinary_user() -> None:
    image = config()
    assert list(image.entrypoint) == ["python3", "-m"]
    assert image.user == "65532:65532"
    assert "PYTHONPATH=/opt/sluice" in image.env


def test_the_product_has_no_tests(tmp_path: Path) -> None:
    write_product(tmp_path / "sluice")
    names = {str(path.relative_to(tmp_path / "sluice")) for path in tmp_path.rglob("*.py")}
    assert "services/driver/__main__.py" in names
    assert not [name for name in names if name.startswith(("libs/testing", "tests"))]
    (information,) = (tmp_path / "sluice").glob("sluice-*.dist-info")
    assert (information / "METADATA").is_file()


def test_a_layer_depends_on_contents_and_permissions_alone(tmp_path: Path) -> None:
    layers: list[bytes] = []
    for name, time in (("a", 1), ("b", 2)):
        folder = tmp_path / name
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/run").write_text("#!")
        (folder / "bin/run").chmod(0o700)
        (folder / "data").write_text("data")
        (folder / "link").symlink_to("data")
        os.utime(folder / "data", (time, time))
        layers.append(folder_layer(folder, at="opt"))
    assert layers[0] == layers[1]
    with tarfile.open(fileobj=BytesIO(layers[0])) as layer:
        modes = {entry.name: entry.mode for entry in layer if not entry.issym()}
    assert modes == {"opt/bin": 0o755, "opt/bin/run": 0o755, "opt/data": 0o644}
    (tmp_path / "b/data").write_text("other")
    assert folder_layer(tmp_path / "b", at="opt") != layers[0]


def test_bytecode_is_written_beside_its_sources() -> None:
    environ = {"PATH": "/bin", "PYTHONPYCACHEPREFIX": "/elsewhere"}
    found = compiler_environ(environ, Path("/base"))
    assert found == {"PATH": "/bin", "PYTHONHOME": "/base/usr", "PYTHONHASHSEED": "0"}


def dpkg_record(name: str, version: str) -> str:
    status = "Status: install ok installed"
    return f"Package: {name}\n{status}\nVersion: {version}\nArchitecture: amd64\n"


def test_the_sbom_is_of_what_the_last_layers_leave(tmp_path: Path) -> None:
    """A builder may bring packages up to date, and remove files, in a layer of its own."""
    status, old = "var/lib/dpkg/status", "var/lib/dpkg/status-old"
    information = "opt/{0}-1.dist-info/METADATA"
    base: dict[str, Path | bytes] = {
        "usr/lib/os-release": b'ID=debian\nVERSION_ID="12"\n',
        status: dpkg_record("libssl3", "1").encode(),
        old: dpkg_record("removed-long-ago", "1").encode(),
        information.format("one"): b"Name: one\nVersion: 1\n",
        information.format("two"): b"Name: two\nVersion: 1\n",
        "srv/x-1.dist-info/METADATA": b"Name: x\nVersion: 1\n",
    }
    packages = "\n".join(dpkg_record(*each) for each in (("libssl3", "2"), ("curl", "1")))
    later: dict[str, Path | bytes] = {
        status: packages.encode(),
        "opt/.wh.one-1.dist-info": b"",
        "srv/.wh..wh..opq": b"",
        "srv/y-1.dist-info/METADATA": b"Name: y\nVersion: 1\n",
    }
    archive = tmp_path / "image.tar"
    layers = [Files(files=each).tar() for each in (base, later)]
    write_image(archive, "sluice:test", layers, config(), architecture="amd64")
    found = {each["name"]: each["version"] for each in sbom(archive)["components"]}
    assert found == {"libssl3": "2", "curl": "1", "two": "1", "y": "1"}
