"""A small, fast Kubernetes client: requests, views, list and watch, caches, work queues, leases,
events.

The only importer of kubernetes_asyncio.
"""
