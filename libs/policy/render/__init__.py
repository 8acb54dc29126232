"""Render the operands of pools as plain Kubernetes objects. Applying them is done elsewhere."""
