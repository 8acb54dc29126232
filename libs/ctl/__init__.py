"""The `sluice` command, for people.

Here may live: asking and showing, and the few Kubernetes writes that steer a rollout, made with the
person's own credentials. Here must not live: a second opinion on the fleet's state; what it shows
is what the services answer or what `libs.rollout` computes.
"""
