"""The cluster role of driver: policies become operands, owner labels and status. A Deployment.

`libs.policy` renders the wanted objects; this role compares them with those of the API server and
writes the differences, one object at a time. It touches no pod.
"""
