"""The schemas of the CRDs as the simulated API server reads them, and the corpus."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from libs.policy.crds import CEL_RULES, crd_schema
from libs.policy.kinds import KINDS
from libs.testing.apiserver.schemas.schema import Schema, structural_schema

Object = dict[str, Any]
CORPUS = Path(__file__).parent / "corpus"


@cache
def served_schema(kind: str) -> Schema:
    """The schema of a kind, as a server has it."""
    return structural_schema(crd_schema(KINDS[kind]), rules=CEL_RULES)


def admit(obj: Object, old: Object | None = None) -> Object:
    """The object as a server would keep it, or the causes for which it would not."""
    known = served_schema(obj["kind"])
    kept = known.default(known.prune(obj))
    causes = known.validate(kept, old)
    assert causes == []
    return kept


def rejection_causes(obj: Object, old: Object | None = None) -> list[tuple[str, str]]:
    """Where and why a server would refuse it."""
    known = served_schema(obj["kind"])
    kept = known.default(known.prune(obj))
    return [(cause["field"], cause["message"]) for cause in known.validate(kept, old)]


def corpus() -> list[Any]:
    """Every manifest, with its file's name and its own."""
    return [
        (f"{file.stem}/{obj['metadata']['name']}", obj)
        for file in sorted(CORPUS.glob("*.yaml"))
        for obj in yaml.safe_load_all(file.read_text())
    ]
