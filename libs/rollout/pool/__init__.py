"""The Rollout of a pool: what its nodes contribute, what it allows, grants and writes."""
