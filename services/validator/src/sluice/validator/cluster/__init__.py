"""The cluster role of validator: evidence is gathered, and checks that need a pod are run.

A Deployment.
"""
