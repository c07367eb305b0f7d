--- keys: wait, active, prioritized, events, stalled (not used), limiter, delayed, paused, meta, pc, marker
--- args: base prefix, now, options (MessagePack map)
--- include fetch_next
--- include take_first

-- specs/02-worker-path.md#sec-4
local options = cmsgpack.unpack(ARGV[3])
return fetch_next(ARGV[1], ARGV[2], options, nil, KEYS[11], take_first) or { 0, 0, 0, 0 }
