--- include call

-- specs/03-transitions-admin-getters.md#9.4: the first place that holds the id. in_list(key, id) searches a list.
local function find_state(id, in_list)
  local state
  local function is_in(set)
    return not state and call('ZSCORE', set, id)
  end
  local function is_on(list)
    return not state and in_list(list, id)
  end

  if is_in(KEYS[1]) then
    --@completed
    state = 'completed'
  end
  if is_in(KEYS[2]) then
    --@failed
    state = 'failed'
  end
  if is_in(KEYS[3]) then
    --@delayed
    state = 'delayed'
  end
  if is_in(KEYS[8]) then
    --@prioritized
    state = 'prioritized'
  end
  if is_on(KEYS[4]) then
    --@active
    state = 'active'
  end
  if is_on(KEYS[5]) then
    --@wait
    state = 'waiting'
  end
  if is_on(KEYS[6]) then
    --@paused
    state = 'waiting'
  end
  if is_in(KEYS[7]) then
    --@waiting-children
    state = 'waiting-children'
  end
  if not state then
    --@unknown
    state = 'unknown'
  end
  return state
end
