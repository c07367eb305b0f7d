--- keys: wait, active, prioritized, events, stalled (not used), limiter, delayed, paused, meta, pc, marker
--- args: base prefix, now, options (MessagePack map)
--- include call
--- include fetch_next

-- specs/02-worker-path.md#w6, plain form: only the first old marker element is skipped.
local function take()
  local id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  if id and is_old_marker(id) then
    --@old-marker
    call('LREM', KEYS[2], '1', id)
    id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  end
  if id then
    --@from-list
    return id
  end
  return take_prioritized()
end

-- specs/02-worker-path.md#sec-4
local options = cmsgpack.unpack(ARGV[3])
return fetch_next(ARGV[1], ARGV[2], options, KEYS[11], take) or { 0, 0, 0, 0 }
