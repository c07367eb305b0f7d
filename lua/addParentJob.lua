--- keys: meta, id, delayed, waiting-children, completed, events
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include add_job
--- include event_cap

-- specs/01-data-model-and-adding.md#sec-7-5
open_job(cmsgpack.unpack(ARGV[1]), ARGV[2])
local options = cmsgpack.unpack(ARGV[3])
if lacks_parent() then
  return -5
end
local sequence = call('INCR', KEYS[2])
local cap = event_cap(KEYS[1])

local id, job, reply = admit(sequence, options, KEYS[5], KEYS[3], KEYS[6], cap)
if reply then
  return reply
end

call('ZADD', KEYS[4], born_at, id)
emit_capped(KEYS[6], cap, 'waiting-children', 'jobId', id)
return finish_add(id, job)
