-- specs/08-batches.md#postponed. Set by the command that ends several jobs: what nothing reads before the end of the
-- call, and is cheaper done for all jobs at once. A command without the flag `deferred` does all in its place.
local deferred = nil

-- entries written to the queue's own event stream
local emitted = 0
