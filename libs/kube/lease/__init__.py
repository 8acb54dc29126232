"""Leader election by a Lease, and the fence that holds writes of a former leader back."""
