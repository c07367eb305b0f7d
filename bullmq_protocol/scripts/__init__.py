"""The Lua scripts, and where a queue or worker takes them from."""
