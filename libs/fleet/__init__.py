"""The fleet as people see it: nodes, pools and waits, in the words of `sluice status`.

The verbs, the live view, the page and the demo show it, and none has a model of its own: a node
that waits is `waiting` everywhere, and a new fact about a node is read here, once. Pure.
"""
