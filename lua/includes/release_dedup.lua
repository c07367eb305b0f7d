--- include call

-- specs/03-transitions-admin-getters.md#s13
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    --@none
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    --@owned
    call('DEL', key)
  else
    --@not-owned
  end
end
