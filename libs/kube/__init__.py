"""A small, fast Kubernetes client.

Here may live: one request function over a transport, views of the fields that we use, list and
watch, cache, work queue, apply, eviction, events, lease. The only importer of kubernetes_asyncio.
Here must not live: what any of it is used for.
"""
