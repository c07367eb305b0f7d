--- step: finished, now, job, id, attempts

-- specs/02-worker-path.md#sec-5, steps 12 and 13. A set that refuses the job does so after its attempts are counted.
if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
  call('HSET', job, 'atm', attempts)
  call('ZADD', finished, now, id)
end
