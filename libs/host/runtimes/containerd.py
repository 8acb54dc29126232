"""What containerd's configuration needs for CDI and for our handlers. Pure.

The handlers are aliases of the default runtime, so that pods which name them start. A drop-in file
has the whole section of containers, because before 2.1 containerd replaces a section by that of an
imported file. The main file stays as a person wrote it, except for one entry of its imports.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec

from libs.host.runtimes import toml

MAIN: Final = "/etc/containerd/config.toml"
FOLDER: Final = "/etc/containerd/conf.d"
DROP_IN: Final = f"{FOLDER}/99-sluice.toml"
IMPORT: Final = f"{FOLDER}/*.toml"
HANDLERS: Final = ("nvidia", "nvidia-cdi")
SPEC_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
_SECTIONS: Final = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
"""The plugin that starts containers, by version of the configuration."""
_DEFAULT: Final = "runc"
_DEFAULT_TYPE: Final = "io.containerd.runc.v2"
_IMPORTS: Final = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_TABLE: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)

Table = dict[str, Any]


class NotConfigurable(Exception):
    """A configuration is left alone; the text is the reason, for people."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted content of the two files."""

    main: str
    drop_in: str


def configure(main: str | None, imported: Mapping[str, str]) -> Change:
    """Return the files that give containers CDI and our handlers; raise `NotConfigurable`.

    `main` is the text of the main file, None if there is none. `imported` are the texts of the
    other files that it imports, by path, in the order in which containerd reads them.
    """
    before = "version = 2\n" if main is None else main
    config = _parse(before, MAIN)
    version = _version(config)
    section = _section(config, version, MAIN)
    for path, text in imported.items():
        other = _parse(text, path)
        if _version(other, version) != version:
            raise NotConfigurable(
                f"{path} has another version than {MAIN}, so what containerd makes of both is not"
                " known: give both the same version"
            )
        section = _section(other, version, path) or section
    plugins = {_SECTIONS[version]: _with_handlers(section, version)}
    drop_in = toml.dumps({"version": version, "plugins": plugins})
    return Change(main=_with_import(before, config), drop_in=drop_in)


def imports_of(main: str) -> tuple[str, ...]:
    """Return the patterns of the files that the main file imports, relative ones as absolute."""
    found = _texts(_parse(main, MAIN).get("imports", [])) or []
    folder = MAIN.rpartition("/")[0]
    return tuple(each if each.startswith("/") else f"{folder}/{each}" for each in found)


def _parse(text: str, path: str) -> Table:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise NotConfigurable(
            f"{path} is not valid TOML ({error}), so containerd's configuration is left alone:"
            " correct the file"
        ) from None


def _version(config: Table, default: int = 1) -> int:
    version = config.get("version", default)
    if version not in _SECTIONS or isinstance(version, bool):
        raise NotConfigurable(
            f"containerd's configuration has version {version!r}: write it in version 2 or 3"
        )
    return int(version)


def _section(config: Table, version: int, path: str) -> Table:
    section = _table(_table(config, ("plugins",), path), (_SECTIONS[version],), path)
    return deepcopy(section)


def _table(table: Table, keys: Sequence[str], path: str) -> Table:
    """Return the table at these keys; empty if it is missing."""
    for key in keys:
        found = table.get(key, {})
        if not isinstance(found, dict):
            raise NotConfigurable(f"{key} in {path} is no table: correct the file")
        table = cast(Table, found)
    return table


def _with_handlers(section: Table, version: int) -> Table:
    """Return the section with CDI switched on, and an alias of the default runtime per handler."""
    containerd = _table(section, ("containerd",), MAIN)
    runtimes = _table(containerd, ("runtimes",), MAIN)
    name = containerd.get("default_runtime_name", _DEFAULT)
    default = _table(runtimes, (str(name),), MAIN) or {"runtime_type": _DEFAULT_TYPE}
    # A handler of a person, or of another toolkit, stays as it is.
    aliases = {each: deepcopy(default) for each in HANDLERS if each not in runtimes}
    changed: Table = {"containerd": {**containerd, "runtimes": {**runtimes, **aliases}}}
    if version == 2:
        changed |= {"enable_cdi": True, "cdi_spec_dirs": _spec_folders(section)}
    elif section.get("enable_cdi") is False:
        changed |= {"enable_cdi": True}
    return {**section, **changed}


def _spec_folders(section: Table) -> list[str]:
    given = _texts(section.get("cdi_spec_dirs", [])) or []
    return [*given, *(each for each in SPEC_FOLDERS if each not in given)]


def _with_import(text: str, config: Table) -> str:
    """Return the main file with our folder among its imports; all else stays byte for byte."""
    imports = _texts(config.get("imports", []))
    if imports is None:
        raise NotConfigurable(f"imports in {MAIN} is no list of texts: correct the file")
    if any(fnmatchcase(DROP_IN, each) for each in imports):
        return text
    changed = _inserted(text, is_there="imports" in config)
    expected = {**config, "imports": [IMPORT, *imports]}
    if _parse(changed, MAIN) != expected:
        raise NotConfigurable(
            f"imports in {MAIN} cannot be changed safely: add {IMPORT!r} to them by hand"
        )
    return changed


def _texts(value: Any) -> list[str] | None:
    """Return a list of texts; None for anything else."""
    items = cast(list[Any], value) if isinstance(value, list) else None
    return None if items is None or any(not isinstance(each, str) for each in items) else items


def _inserted(text: str, *, is_there: bool) -> str:
    if not is_there:
        return f'imports = ["{IMPORT}"]\n{text}'
    first_table = _TABLE.search(text)
    found = _IMPORTS.search(text, 0, first_table.start() if first_table else len(text))
    if found is None:
        return text
    return f'{text[: found.end()]}"{IMPORT}", {text[found.end() :]}'
