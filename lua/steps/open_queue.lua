--- step: known

-- specs/02-worker-path.md#w1, as a condition: the queue is not paused, and nothing limits what is taken.
not (known.paused or known.concurrency or known.max)
