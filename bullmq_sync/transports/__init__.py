"""Blocking transports. `redis_py` is the only module that imports redis."""
