--- needs: KEYS.active, KEYS.wait
--- include call
--- include fetch_next

-- specs/02-worker-path.md#w6, plain form: only the first old marker element is skipped.
local function pop_next()
  local id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  if id and is_old_marker(id) then
    --@old-marker
    call('LREM', KEYS.active, '1', id)
    id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  end
  if id then
    --@from-list
    return id
  end
  return pop_prioritized()
end
