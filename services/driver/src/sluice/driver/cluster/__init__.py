"""The cluster role of driver: policies become operands, owner labels and status. A Deployment."""
