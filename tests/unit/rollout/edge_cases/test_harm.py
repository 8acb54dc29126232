"""What is reckoned of a target is the same record where nothing is newly known of it."""

from libs.contracts.rollout import RolloutSpec, TargetRecord
from libs.rollout import harm


def test_who_validates_it_beyond_the_proof_changes_nothing() -> None:
    proven = TargetRecord(threshold=2, validated=("u1", "u2"), proven=True, proven_at=5.0)
    again = harm.updated_record(proven, RolloutSpec(), "t", failed=(), validated=("u3",), now=9.0)
    assert again is proven
