"""Several services in one place: the simulated machine, the demo and the campaign.

The only package that may import more than one service.
"""
