--- include call
--- include purge
--- when batch
--- include fetched_bytes
--- end
--- include unlink_child

-- specs/02-worker-path.md#w16: no event; the deduplication key and the lock stay.
local function forget(base, ids)
  for index = 1, #ids do
    --@removed
    local job = base .. ids[index]
    unlink_looked_up(job)
    purge(job)
    --- when batch
    fetched_bytes = fetched_bytes + 2000
    --- end
  end
end

-- age in seconds; what finished exactly then goes too.
local function keep_by_age(base, finished, now, age)
  local oldest = now - age * 1000
  forget(base, call('ZREVRANGEBYSCORE', finished, oldest, '-inf'))
  call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
end

local function keep_by_count(base, finished, count)
  forget(base, call('ZREVRANGE', finished, count, '-1'))
  call('ZREMRANGEBYRANK', finished, '0', -(count + 1))
end
