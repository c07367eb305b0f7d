--- include call
--- include default_cap

-- specs/01-data-model-and-adding.md#6.1: a stored text is not validated here.
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    --@found
    return stored
  end
  return store_default_cap(meta)
end
