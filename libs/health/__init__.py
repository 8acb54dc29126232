"""When a GPU is degraded or failed: rules over what one sweep of its node's GPUs says. Pure.

`xids` is what each XID means, `rules` what one reading of a GPU says, `record` what the readings of
a GPU come to, and `node` joins the GPUs of a node. docs/health.md describes all of it.
"""
