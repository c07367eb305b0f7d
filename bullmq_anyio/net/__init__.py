"""The native connection to one server, sentinels or a cluster. `redis_asyncio` alone imports redis."""
