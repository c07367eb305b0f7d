"""Node adds and Python works, and the reverse; docs/guides/mixed-fleets.md explains it."""
