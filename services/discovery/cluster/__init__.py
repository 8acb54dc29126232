"""The cluster role of discovery: facts become labels and `Device` objects. A Deployment."""
