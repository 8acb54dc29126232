"""The folder outside the checkout that keeps what tests build once."""

from collections.abc import Mapping
from pathlib import Path


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return the folder below which each kind of build has its own."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification ignores a relative path
        base = Path(environ.get("HOME") or Path.home()) / ".cache"
    return base / "sluice"
