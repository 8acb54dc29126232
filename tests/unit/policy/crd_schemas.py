"""The schemas of the CRDs as the simulated API server reads them, and the corpus."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from libs.policy.crds import schema
from libs.policy.kinds import KINDS
from libs.policy.rules import RULES
from libs.testing.apiserver.schemas import Schema, structural

Object = dict[str, Any]
CORPUS = Path(__file__).parent / "corpus"


@cache
def served(kind: str) -> Schema:
    """The schema of a kind, as a server has it."""
    return structural(schema(KINDS[kind]), rules=RULES)


def accepted(obj: Object, old: Object | None = None) -> Object:
    """The object as a server would keep it, or the causes for which it would not."""
    known = served(obj["kind"])
    kept = known.default(known.prune(obj))
    causes = known.validate(kept, old)
    assert causes == []
    return kept


def refused(obj: Object, old: Object | None = None) -> list[tuple[str, str]]:
    """Where and why a server would refuse it."""
    known = served(obj["kind"])
    kept = known.default(known.prune(obj))
    return [(cause["field"], cause["message"]) for cause in known.validate(kept, old)]


def corpus() -> list[Any]:
    """Every manifest, with its file's name and its own."""
    return [
        (f"{file.stem}/{obj['metadata']['name']}", obj)
        for file in sorted(CORPUS.glob("*.yaml"))
        for obj in yaml.safe_load_all(file.read_text())
    ]
