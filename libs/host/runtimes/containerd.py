"""What containerd's configuration needs for CDI and for our handlers. Pure.

The handlers are aliases of the default runtime, so that pods which name them start. A drop-in file
has the whole section of containers, because before 2.1 containerd replaces a section by that of an
imported file. So it is read last: it is the last of the imports, or has the last name in a folder.
The main file stays as a person wrote it, except for one entry of its imports.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from itertools import islice
from posixpath import normpath, splitext
from typing import Any, Final, cast

import msgspec

from libs.host.runtimes import toml
from libs.host.runtimes.common import HANDLERS, NotConfigurable, Table

MAIN: Final = "/etc/containerd/config.toml"
FOLDER: Final = "/etc/containerd/conf.d"
NAME: Final = "zz-sluice.toml"
DROP_IN: Final = f"{FOLDER}/{NAME}"
IMPORT: Final = f"{FOLDER}/zz-sluice*.toml"
SPEC_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
_CRI: Final = "io.containerd.cri.v1.runtime"
SECTIONS: Final = {2: "io.containerd.grpc.v1.cri", 3: _CRI, 4: _CRI}
"""The plugin that starts containers, by version of the configuration: 3 in 2.0, 4 in 2.4."""
_DEFAULT: Final = "runc"
_DEFAULT_TYPE: Final = "io.containerd.runc.v2"
_IMPORTS: Final = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_TABLE: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_RELEASE: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})")
_MAX_BRACKETS: Final = 64
"""The most brackets that are tried as the end of the imports: a comment or a text may have some."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files are, and the handlers that they get."""

    main: str = MAIN
    drop_in: str = DROP_IN
    handlers: tuple[str, ...] = HANDLERS
    merges: bool = False
    """Whether containerd merges the section of a file with that of an imported one."""


DEFAULT_LAYOUT: Final = Layout()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted content of the two files."""

    main: str
    drop_in: str


def configure(
    main: str | None, imported: Mapping[str, str], layout: Layout = DEFAULT_LAYOUT
) -> Change:
    """Return the files that give containers CDI and our handlers; raise `NotConfigurable`.

    `main` is the text of the main file, None if there is none. `imported` are the texts of the
    other files that it imports, by path, in the order in which containerd reads them.
    """
    before = "version = 2\n" if main is None else main
    config = parse(before, layout.main)
    version = version_of(config, layout.main)
    section = section_of(config, version, layout.main)
    for path, text in imported.items():
        other = parse(text, path)
        if version_of(other, path, default=version) != version:
            raise NotConfigurable(
                f"{path} has another version than {layout.main}, so what containerd makes of both"
                " is not known: give both the same version"
            )
        found = section_of(other, version, path)
        if layout.merges:
            section = _merged(section, found)
        elif has_section(text, path):
            section = found
    plugins = {SECTIONS[version]: _with_handlers(section, version, layout)}
    drop_in = toml.dumps({"version": version, "plugins": plugins})
    return Change(main=_with_import(before, config, layout), drop_in=drop_in)


def merges(release: str) -> bool:
    """Return whether containerd of this release merges sections, as it does since 2.1."""
    found = _RELEASE.match(release)
    return found is not None and (int(found[1]), int(found[2])) >= (2, 1)


def _merged(first: Table, second: Table) -> Table:
    """Return the tables in one; of other values, those of the second."""
    both = {
        key: _merged(cast(Table, first[key]), cast(Table, value))
        for key, value in second.items()
        if isinstance(value, dict) and isinstance(first.get(key), dict)
    }
    return {**first, **second, **both}


def imports_of(main: str, path: str = MAIN) -> tuple[str, ...]:
    """Return the patterns of the files that the main file imports, relative ones as absolute."""
    found = _texts(parse(main, path).get("imports", [])) or []
    folder = path.rpartition("/")[0]
    return tuple(normpath(each if each.startswith("/") else f"{folder}/{each}") for each in found)


def is_imported(path: str, pattern: str) -> bool:
    """Return whether a pattern of the imports names this file; `*` is any text in one name."""
    names, wanted = path.split("/"), pattern.split("/")
    return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))


def parse(text: str, path: str) -> Table:
    try:
        return toml.loads(text)
    except toml.NotToml as error:
        raise NotConfigurable(
            f"{path} is not valid TOML ({error}), so containerd's configuration is left alone:"
            " correct the file"
        ) from None


def version_of(config: Table, path: str, *, default: int = 1) -> int:
    """Return the version of a configuration; raise `NotConfigurable` for an unknown one."""
    version = config.get("version", default)
    if type(version) is not int or version not in SECTIONS:
        raise NotConfigurable(
            f"containerd's configuration {path} has version {version!r}: write it in version 2, 3"
            " or 4"
        )
    return version


def section_of(config: Table, version: int, path: str) -> Table:
    """Return a copy of the section of containers; empty if it is missing."""
    return deepcopy(table_at(config, ("plugins", SECTIONS[version]), path))


def has_section(text: str, path: str) -> bool:
    """Return whether a file has the section of containers."""
    plugins = table_at(parse(text, path), ("plugins",), path)
    return any(each in plugins for each in SECTIONS.values())


def aliases(section: Table, handlers: Sequence[str], path: str) -> dict[str, Table]:
    """Return the handlers that are missing, each as a copy of the default runtime.

    A handler of a person, or of another toolkit, stays as it is.
    """
    containerd = table_at(section, ("containerd",), path)
    runtimes = table_at(containerd, ("runtimes",), path)
    name = containerd.get("default_runtime_name", _DEFAULT)
    default = {"runtime_type": _DEFAULT_TYPE, **table_at(runtimes, (str(name),), path)}
    return {each: deepcopy(default) for each in handlers if each not in runtimes}


def table_at(table: Table, keys: Sequence[str], path: str) -> Table:
    """Return the table at these keys; empty if it is missing."""
    for key in keys:
        found = table.get(key, {})
        if not isinstance(found, dict):
            raise NotConfigurable(f"{key} in {path} is no table: correct the file")
        table = cast(Table, found)
    return table


def _with_handlers(section: Table, version: int, layout: Layout) -> Table:
    """Return the section with CDI switched on, and an alias of the default runtime per handler."""
    added = aliases(section, layout.handlers, layout.main)
    containerd = table_at(section, ("containerd",), layout.main)
    runtimes = table_at(containerd, ("runtimes",), layout.main)
    if version == 2:
        # containerd 1.7 has its own `runc` only as long as no file names any runtime.
        runtimes = runtimes or {_DEFAULT: {"runtime_type": _DEFAULT_TYPE}}
    changed: Table = {"containerd": {**containerd, "runtimes": {**runtimes, **added}}}
    if version == 2:
        changed |= {"enable_cdi": True, "cdi_spec_dirs": _spec_folders(section)}
    elif section.get("enable_cdi") is False:
        changed |= {"enable_cdi": True}
    return {**section, **changed}


def _spec_folders(section: Table) -> list[str]:
    given = _texts(section.get("cdi_spec_dirs", [])) or []
    return [*given, *(each for each in SPEC_FOLDERS if each not in given)]


def _with_import(text: str, config: Table, layout: Layout) -> str:
    """Return the main file with our file last among its imports; all else stays byte for byte.

    A pattern may lead to nothing, while containerd 1.7 does not start without a file that is named.
    """
    imports = _texts(config.get("imports", []))
    if imports is None:
        raise NotConfigurable(f"imports in {layout.main} is no list of texts: correct the file")
    if any(is_imported(layout.drop_in, each) for each in imports_of(text, layout.main)):
        return text
    pattern = "*".join(splitext(layout.drop_in))
    expected = {**config, "imports": [*imports, pattern]}
    for changed in _inserted(text, pattern, is_there="imports" in config):
        if _parsed(changed) == expected:
            return changed
    raise NotConfigurable(
        f"imports in {layout.main} cannot be changed safely: add {pattern!r} to them by hand"
    )


def _texts(value: Any) -> list[str] | None:
    """Return a list of texts; None for anything else."""
    items = cast(list[Any], value) if isinstance(value, list) else None
    return None if items is None or any(not isinstance(each, str) for each in items) else items


def _parsed(text: str) -> Table | None:
    try:
        return toml.loads(text)
    except toml.NotToml:
        return None


def _inserted(text: str, pattern: str, *, is_there: bool) -> Iterator[str]:
    """Yield texts of which one may be that with the pattern as last entry of its imports."""
    if not is_there:
        yield f'imports = ["{pattern}"]\n{text}'
        return
    first_table = _TABLE.search(text)
    found = _IMPORTS.search(text, 0, first_table.start() if first_table else len(text))
    if found is None:
        return
    for bracket in islice(re.finditer("]", text[found.end() :]), _MAX_BRACKETS):
        at = found.end() + bracket.start()
        for comma in (", ", ""):
            yield f'{text[:at]}{comma}"{pattern}"{text[at:]}'
