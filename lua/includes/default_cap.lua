--- include call

-- specs/01-data-model-and-adding.md#sec-6-1, step 2
local function store_default_cap(meta)
  --@stored
  call('HSET', meta, 'opts.maxLenEvents', 10000)
  return 10000
end
