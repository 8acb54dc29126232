"""Several services in one place: the simulated machine, the demo and the campaign.

The only package that may import more than one service. Here must not live: anything that a service
would miss if this package were gone.
"""
