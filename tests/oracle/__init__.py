"""Compare our Lua with BullMQ's own scripts: the same call on the same start state, then every key and the reply."""
