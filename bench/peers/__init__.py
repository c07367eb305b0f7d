"""Other queues of Python in the bench, each in an environment of its own, pinned by the file beside it."""
