"""One function per script or Redis command, each returning a `Command`. Names are the protocol's in snake case."""
