--- keys: wait, paused, meta, id, completed, delayed, active, events, marker
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include add_job
--- include default_cap
--- include is_held
--- include mark_ready

-- specs/01-data-model-and-adding.md#sec-7-2
local completed, delayed, active, events = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local options = cmsgpack.unpack(ARGV[3])
if lacks_parent() then
  return -5
end
local sequence = call('INCR', KEYS[4])
local settings = call('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings[1] or store_default_cap(KEYS[3])

local id, job, reply = admit(sequence, options, completed, delayed, events, cap)
if reply then
  return reply
end

local held = is_held(settings[2], settings[3], active)
local target = settings[2] and KEYS[2] or KEYS[1]
if options.lifo then
  --@lifo
  call('RPUSH', target, id)
else
  --@fifo
  call('LPUSH', target, id)
end
mark_ready(KEYS[9], held)
emit_capped(events, cap, 'waiting', 'jobId', id)
return finish_add(id, job)
