--- step: job, id, token, lock_ms, events

-- specs/02-worker-path.md#w7: the lock and the event. with unlocked: the token 0 takes no lock.
--- when unlocked
if token ~= '0' then
  --@locked
  call('SET', job .. ':lock', token, 'PX', lock_ms)
end
--- else
call('SET', job .. ':lock', token, 'PX', lock_ms)
--- end
call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
