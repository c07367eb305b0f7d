--- include call
--- include purge
--- when batch
--- include fetched_bytes
--- end
--- include unlink_child
--- when age_retention_limit
--- include remove_members
--- end

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
--- when age_retention_limit
-- specs/06-later-versions.md#sec-11-6-1: the youngest of them first, at most as many as the limit says.
local function keep_by_age(base, finished, now, age, limit)
  limit = limit or 1000
  local oldest = now - age * 1000
  local ids = call('ZREVRANGEBYSCORE', finished, oldest, '-inf', 'LIMIT', '0', limit)
  if not ids[1] then
    --@none-expired
    return
  end
  forget(base, ids)
  if #ids < limit then
    --@all-expired
    call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
  else
    --@some-expired
    remove_members(finished, ids)
  end
end
--- else
local function keep_by_age(base, finished, now, age)
  local oldest = now - age * 1000
  forget(base, call('ZREVRANGEBYSCORE', finished, oldest, '-inf'))
  call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
end
--- end

local function keep_by_count(base, finished, count)
  forget(base, call('ZREVRANGE', finished, count, '-1'))
  call('ZREMRANGEBYRANK', finished, '0', -(count + 1))
end
