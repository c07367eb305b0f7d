"""The native connection, and transports over redis-py. The `redis_py` modules alone import redis."""
