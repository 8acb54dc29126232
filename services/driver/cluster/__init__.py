"""The cluster role of driver: policies become operands, owner labels and status. A Deployment.

What is wanted is `libs.policy`'s to say; here it is held against what the API server has, and
carried out, one object at a time. It never decides when a node moves, and touches no pod.
"""
