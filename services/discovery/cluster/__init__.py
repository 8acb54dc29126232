"""The cluster role of discovery: turns facts into node labels. A Deployment."""
