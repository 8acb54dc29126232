"""Images: what the two ways to build one share, and what a layer depends on."""

import os
import tarfile
from io import BytesIO
from pathlib import Path

from libs.testing.image.assemble import compiler_environ
from libs.testing.image.context import config, write_product
from libs.testing.oci import folder_layer


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
