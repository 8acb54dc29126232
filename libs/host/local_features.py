"""Labels that administrators describe in the feature files of node feature discovery (NFD).

A line is `key`, `key=value` or a comment. A comment may be a directive: `# +expiry-time=<time>`
ends all lines below it at that time, `# +no-label` leaves out the next line. What cannot be used is
left out and counted. A reason names the file and the line, never their content: whoever may write
one of these files cannot use it to read another one.
"""

import re
import stat
from datetime import datetime
from typing import Final

from libs.contracts.facts import LocalFeatures
from libs.contracts.node import RESERVED_DOMAINS, is_vendor_label
from libs.contracts.words import printable
from libs.host.tree import Tree

FOLDER: Final = "/etc/kubernetes/node-feature-discovery/features.d"
PREFIX: Final = "feature.node.kubernetes.io/"
MAX_FILES: Final = 64
"""Files that are read. Who may write here is not trusted: see also the limits below."""
MAX_BYTES: Final = 65_536
"""Of one file."""
MAX_LINES: Final = 1000
"""Of one file."""
MAX_LABELS: Final = 64
"""Labels of all files together; each is written to the Node, which the whole cluster reads."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
"""The form of a label's name; a value has it too, or is empty."""
_DOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_DIRECTIVE: Final = "# +"
_MAX_NAME: Final = 64
"""Characters of a file's name in a reason."""


def local_features(tree: Tree, *, now: float) -> LocalFeatures:
    """Read all files in order of their names: a later one overrides earlier ones."""
    reader = _Reader(now)
    names = [name for name in tree.names(FOLDER) if not name.startswith(".")]
    for name in names[:MAX_FILES]:
        reason = _why_unusable(tree, f"{FOLDER}/{name}")
        if reason:
            reader.refuse(name, reason)
        else:
            reader.read(name, tree.data(f"{FOLDER}/{name}") or b"")
    if len(names) > MAX_FILES:
        reader.refuse(names[MAX_FILES], f"there are more than {MAX_FILES} files")
    return LocalFeatures(
        labels=dict(sorted(reader.labels.items())), refused=reader.refused, why=reader.why
    )


class _Reader:
    """Collects the labels of all files, and what is refused."""

    def __init__(self, now: float) -> None:
        self.labels: dict[str, str] = {}
        self.refused = 0
        self.why = ""
        self._now = now
        self._skips_next = False
        self._is_expired = False

    def refuse(self, name: str, reason: str) -> None:
        self.refused += 1
        shown = printable(name[:_MAX_NAME], "?")
        self.why = self.why or f"{FOLDER}/{shown}: {reason}"

    def read(self, name: str, data: bytes) -> None:
        self._skips_next = self._is_expired = False
        lines = data.splitlines()
        for number, line in enumerate(lines[:MAX_LINES], start=1):
            reason = self._read_line(line)
            if reason:
                self.refuse(name, f"line {number}: {reason}")
        if len(lines) > MAX_LINES:
            self.refuse(name, f"it has more than {MAX_LINES} lines")

    def _read_line(self, line: bytes) -> str:
        """Read a line; return why it is refused, or an empty text."""
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            return "it is not UTF-8"
        if text.startswith(_DIRECTIVE):
            return self._follow(text)
        if not text or text.startswith("#"):
            return ""
        skipped, self._skips_next = self._skips_next, False
        return "" if skipped or self._is_expired else self._add(text)

    def _follow(self, directive: str) -> str:
        name, _, value = directive.removeprefix(_DIRECTIVE).partition("=")
        match name.strip():
            case "no-label":
                self._skips_next = True
            case "no-feature":
                pass  # it concerns the rules of NFD alone
            case "expiry-time":
                at = _time(value.strip())
                if at is None:
                    return "its time is not one of RFC 3339"
                self._is_expired = at <= self._now
            case _:
                return "its directive is unknown"
        return ""

    def _add(self, text: str) -> str:
        key, equals, value = text.partition("=")
        name = key.removeprefix(PREFIX)
        domain, slash, own = name.rpartition("/")
        if slash and not is_vendor_label(key):
            return f"keys of {', '.join(RESERVED_DOMAINS)} are not used, but for {PREFIX}"
        if not _NAME.fullmatch(own) or (slash and not _DOMAIN.fullmatch(domain)):
            return "its key is no key of a label"
        if value and not _NAME.fullmatch(value):
            return "its value is no value of a label"
        label = name if slash else f"{PREFIX}{name}"
        if label not in self.labels and len(self.labels) >= MAX_LABELS:
            return f"there are more than {MAX_LABELS} labels"
        self.labels[label] = value if equals else "true"
        return ""


def _time(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else at.timestamp()


def _why_unusable(tree: Tree, path: str) -> str:
    """Return why a file is not read; empty if it is."""
    status = tree.status(path)
    if tree.link(path) is not None or (status is not None and not stat.S_ISREG(status.st_mode)):
        return "it is not a regular file"
    if status is not None and status.st_size > MAX_BYTES:
        return f"it has more than {MAX_BYTES} bytes"
    return ""
