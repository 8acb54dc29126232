"""The `sluice` command: queries to the services, and Kubernetes writes with the user's credentials.

It shows what the services answer or what `libs.rollout` computes, and derives no state of its own.
"""
