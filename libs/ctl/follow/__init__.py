"""Follow the fleet: caches of Kubernetes and the stream of events, for the live view and the page.

Both show one `FleetState`; what each draws of it is its own.
"""
