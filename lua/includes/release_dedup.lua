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
    --- when keep_last_if_active
    -- specs/06-later-versions.md#l7
    call('DEL', base .. 'dn:' .. dedup_id)
    --- end
  else
    --@not-owned
  end
end
