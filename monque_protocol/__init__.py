"""The protocol of Monque, a job scheduler on MongoDB, without input and output: documents, commands, the scheduler.

The core never waits, never reads a clock and rolls no dice. `monque_anyio` and `monque_sync` run it on pymongo.
"""
