"""The cluster role of validator: evidence is gathered and shown, by node and by pool.

A Deployment. Checks that need a pod of their own have their place here.
"""
