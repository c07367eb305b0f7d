"""The BullMQ protocol, without I/O: keys, jobs, options, commands, operations and the worker as a state machine."""
