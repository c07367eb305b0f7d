--- keys: marker, meta, id, prioritized, delayed, completed, active, events, pc
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include add_job
--- include default_cap
--- include is_held
--- include mark_ready
--- include place_by_priority

-- specs/01-data-model-and-adding.md#sec-7-4
local delayed, completed, active, events = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local options = cmsgpack.unpack(ARGV[3])
if lacks_parent() then
  return -5
end
local sequence = call('INCR', KEYS[3])
local settings = call('HMGET', KEYS[2], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings[1] or store_default_cap(KEYS[2])

local id, job, reply = admit(sequence, options, completed, delayed, events, cap)
if reply then
  return reply
end

local held = is_held(settings[2], settings[3], active)
place_by_priority(KEYS[4], KEYS[9], options.priority or 0, id)
mark_ready(KEYS[1], held)
emit_capped(events, cap, 'waiting', 'jobId', id)
return finish_add(id, job)
