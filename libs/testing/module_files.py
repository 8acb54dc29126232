"""Files that stand for kernel modules: they have the fields of real ones, and nothing else."""


def module_fields(content: bytes) -> dict[str, str]:
    """Return the fields of a module's file, such as its name and version."""
    parts = (part.decode(errors="replace").partition("=") for part in content.split(b"\0"))
    return {name: value for name, equals, value in parts if equals}


def module_file(name: str, version: str, *depends: str) -> bytes:
    """Return the file of a module that needs these."""
    fields = (
        f"version={version}",
        "license=GPL",
        f"depends={','.join(depends)}",
        f"name={name}",
        "vermagic=6.8.0-48-generic SMP preempt mod_unload modversions ",
    )
    return b"\x7fELF\0" + b"\0".join(each.encode() for each in fields) + b"\0"
