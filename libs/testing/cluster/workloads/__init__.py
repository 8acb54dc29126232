"""ReplicaSets and Jobs; the decisions are pure functions in `plan`."""
