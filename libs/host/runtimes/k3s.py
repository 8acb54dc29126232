"""What the containerd of k3s and RKE2 needs for our handlers. Pure.

They write containerd's configuration at each start, from a template. Where it imports a folder, a
drop-in file there is enough. Otherwise our handlers are added to the template: the tables of the
handlers alone, so that all other settings stay those of k3s.
"""

import re
from typing import Final

from libs.host.runtimes import containerd, toml
from libs.host.runtimes.common import HANDLERS, NotConfigurable

FOLDER: Final = "agent/etc/containerd/"
"""In the path of a configuration that k3s or RKE2 writes."""
BASE: Final = '{{ template "base" . }}\n'
"""What k3s writes without a template of a person's."""
_TEMPLATES: Final = {2: "config.toml.tmpl", 3: "config-v3.toml.tmpl"}
_BEGIN: Final = "# Handlers by Sluice: begin\n"
_END: Final = "# Handlers by Sluice: end\n"
_OURS: Final = re.compile(f"\n?{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)


def is_generated(path: str) -> bool:
    """Return whether k3s or RKE2 writes this configuration."""
    return f"/{FOLDER}" in path


def template_path(generated: str, path: str) -> str:
    """Return the path of the template of this configuration."""
    version = containerd.version_of(containerd.parse(generated, path), path)
    if version not in _TEMPLATES:
        raise NotConfigurable(
            f"{path} has version {version}, of which the template's name is not known: add the"
            f" handlers {' and '.join(HANDLERS)} by hand"
        )
    return f"{path.rpartition('/')[0]}/{_TEMPLATES[version]}"


def imported_folder(generated: str, path: str) -> str:
    """Return the folder whose TOML files the configuration imports; empty if there is none."""
    patterns = containerd.imports_of(generated, path)
    folders = (each.rpartition("/")[0] for each in patterns if each.endswith("/*.toml"))
    return next(folders, "")


def configure(
    generated: str, path: str, template: str | None, *, handlers: tuple[str, ...] = HANDLERS
) -> str:
    """Return the template with our handlers; raise `NotConfigurable`."""
    generated = _OURS.sub("", generated)
    config = containerd.parse(generated, path)
    version = containerd.version_of(config, path)
    section = containerd.section_of(config, version, path)
    if section.get("enable_cdi", version >= 3) is not True:
        raise NotConfigurable(
            f"{path} does not switch on CDI, which only a template of the whole file can do: set"
            f" enable_cdi = true in {template_path(generated, path)}, or upgrade to a release with"
            " containerd 2"
        )
    before = BASE if template is None else _OURS.sub("", template)
    added = containerd.aliases(section, handlers, path)
    if not added:
        return before
    root = {"plugins": {containerd.SECTIONS[version]: {"containerd": {"runtimes": added}}}}
    tables = toml.dumps(root)
    containerd.parse(f"{generated}\n{tables}", path)  # as k3s will write it
    return f"{before}\n{_BEGIN}{tables.lstrip()}{_END}"
