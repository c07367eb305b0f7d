--- include call

local EVENT_CAP_FIELD = 'opts.maxLenEvents'

-- specs/01-data-model-and-adding.md#6.1, step 2
local function store_default_cap(meta)
  --@default
  call('HSET', meta, EVENT_CAP_FIELD, 10000)
  return 10000
end

-- specs/01-data-model-and-adding.md#6.1: the stored text is not validated here.
local function event_cap(meta)
  local stored = call('HGET', meta, EVENT_CAP_FIELD)
  if stored then
    --@stored
    return stored
  end
  return store_default_cap(meta)
end
