--- step: job, id, now, worker
--- needs: KEYS.marker

-- specs/02-worker-path.md#w7: the attempt and the ready marker, which is set always. Returns what a fetch answers.
local fields = start_attempt(job, now, worker)
--- when batch
if not marked then
  call('ZADD', KEYS.marker, '0', '0')
  marked = true
end
--- else
call('ZADD', KEYS.marker, '0', '0')
--- end
return { fields, id, 0, 0 }
