"""The CRD schemas as the simulated API server applies them, and the corpus of manifests."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from libs.policy.crds import CEL_RULES, crd_schema
from libs.policy.kinds import KINDS
from libs.testing.apiserver.kinds.schema import Schema, structural_schema

Object = dict[str, Any]
CORPUS = Path(__file__).parent / "corpus"


@cache
def served_schema(kind: str) -> Schema:
    return structural_schema(crd_schema(KINDS[kind]), rules=CEL_RULES)


def admit(obj: Object, old: Object | None = None) -> Object:
    """Return the object as a server would store it; fail if it would be refused."""
    served = served_schema(obj["kind"])
    stored = served.default(served.prune(obj))
    causes = served.validate(stored, old)
    assert causes == []
    return stored


def rejection_causes(obj: Object, old: Object | None = None) -> list[tuple[str, str]]:
    """Return field and message of each cause for which a server would refuse the object."""
    known = served_schema(obj["kind"])
    stored = known.default(known.prune(obj))
    return [(cause["field"], cause["message"]) for cause in known.validate(stored, old)]


def corpus() -> list[Any]:
    """Return every manifest with the names of its file and object."""
    return [
        (f"{file.stem}/{obj['metadata']['name']}", obj)
        for file in sorted(CORPUS.glob("*.yaml"))
        for obj in yaml.safe_load_all(file.read_text())
    ]
