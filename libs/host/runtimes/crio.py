"""What CRI-O's configuration needs for our handlers. Pure.

CRI-O reads CDI specs by default. The handlers are aliases of the default runtime, in a drop-in file
of their own: CRI-O merges the tables of all its files.
"""

from collections.abc import Mapping
from typing import Final, cast

from libs.host.runtimes import toml
from libs.host.runtimes.common import HANDLERS, NotConfigurable, Table

MAIN: Final = "/etc/crio/crio.conf"
FOLDER: Final = "/etc/crio/crio.conf.d"
DROP_IN: Final = f"{FOLDER}/99-sluice.conf"
_ROOT: Final = ("crio", "runtime")


def configure(files: Mapping[str, str], *, handlers: tuple[str, ...] = HANDLERS) -> str:
    """Return the drop-in file; raise `NotConfigurable`.

    `files` are the texts of the other files, by path, in the order in which CRI-O reads them.
    """
    name = ""
    runtimes: Table = {}
    for path, text in files.items():
        table = _runtime_table(text, path)
        name = str(table.get("default_runtime", name))
        runtimes |= _tables(table.get("runtimes", {}), path)
    default = runtimes.get(name, {})
    if not default.get("runtime_path"):
        # Without a path CRI-O searches a program with the name of the handler, and does not start.
        shown = f"default runtime {name}" if name else "default runtime"
        raise NotConfigurable(
            f"CRI-O's configuration does not say where its {shown} is, so it is left alone: set"
            f" default_runtime and the runtime_path of its table in {FOLDER}"
        )
    missing = {each: default for each in handlers if each not in runtimes}
    return toml.dumps({"crio": {"runtime": {"runtimes": missing}}}) if missing else ""


def _runtime_table(text: str, path: str) -> Table:
    try:
        table = toml.loads(text)
    except toml.NotToml as error:
        raise NotConfigurable(
            f"{path} is not valid TOML ({error}), so CRI-O's configuration is left alone: correct"
            " the file"
        ) from None
    for key in _ROOT:
        table = _table(table.get(key, {}), key, path)
    return table


def _tables(value: object, path: str) -> dict[str, Table]:
    tables = _table(value, "runtimes", path)
    return {name: _table(each, name, path) for name, each in tables.items()}


def _table(value: object, key: str, path: str) -> Table:
    if not isinstance(value, dict):
        raise NotConfigurable(f"{key} in {path} is no table: correct the file")
    return cast(Table, value)
