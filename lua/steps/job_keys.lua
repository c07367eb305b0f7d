--- step: job

-- specs/02-worker-path.md#w15, as arguments of DEL: what belongs to a job, but its lock.
job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
