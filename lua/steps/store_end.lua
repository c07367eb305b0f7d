--- step: job, now, field, result, attempts, drops_deferred

-- specs/02-worker-path.md#sec-5, steps 12 and 13: what a job that ended and is kept has. attempts: their text.
call('HSET', job, 'atm', attempts, field, result, 'finishedOn', now)
if drops_deferred then
  --@deferred-failure
  call('HDEL', job, 'defa')
end
