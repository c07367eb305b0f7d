--- include call

-- specs/02-worker-path.md#w15: gives the number of keys that existed. The lock stays.
local function purge(job)
  return call('DEL', job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed',
    job .. ':unsuccessful')
end

-- specs/02-worker-path.md#w19: wrong for ids with colons, as specified. No colon: nil.
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
