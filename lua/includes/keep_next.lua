--- include call
--- include is_active

-- specs/06-later-versions.md#l5: gives whether the new job is kept until the owner of the key ends. What the job is,
-- stands in the locals of add_job.
local function keep_next(dedup_id, id, owner, options)
  if not is_active(base .. 'active', owner) then
    --@not-active
    return false
  end
  local kept = base .. 'dn:' .. dedup_id
  local fields = { 'name', name, 'data', data, 'opts', cjson.encode(options), 'jid', id .. '' }
  local function add(field, value)
    if value then
      --@field
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end

  if parent then
    --@parent
    add('pk', parent)
    add('pd', cjson.encode(link))
  end
  add('pdk', pending)
  add('rjk', scheduler)
  call('DEL', kept)
  call('HSET', kept, unpack(fields))
  -- not the key that the client packed, should that be another one
  call('PERSIST', base .. 'de:' .. dedup_id)
  return true
end
