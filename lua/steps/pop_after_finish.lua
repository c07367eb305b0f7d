--- step:
--- needs: KEYS.active, KEYS.wait

-- specs/02-worker-path.md#w6, finish form: an old marker element ends the search.
local function pop_after_finish()
  local next_id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  if not next_id then
    return pop_prioritized()
  end
  if not is_old_marker(next_id) then
    --@from-list
    return next_id
  end
  call('LREM', KEYS.active, '1', next_id)
  if next_id ~= '0:0' then
    --@old-marker
    return nil
  end
  --@old-marker-zero
  return assert(pop_prioritized(), 'no prioritized job after the marker 0:0')
end
