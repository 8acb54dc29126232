"""Leader election by a Lease, and the fence that stops writes of a former leader."""
