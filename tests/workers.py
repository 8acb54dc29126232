"""The old name of the grounds."""

from tests.run.plan import Ground as WorkerGroup

__all__ = ["WorkerGroup"]
