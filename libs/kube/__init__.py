"""A small, fast Kubernetes client: requests, views, list and watch, caches, work queues, leases,
events, and streams to ports of pods.

The only importer of kubernetes_asyncio.
"""
