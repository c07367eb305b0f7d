--- keys: meta, id, delayed, waiting_children, completed, events
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- flags: flow_node
--- include add_job
--- include event_cap

-- specs/01-data-model-and-adding.md#sec-7-5
open_job(cmsgpack.unpack(ARGV.job), ARGV.data)
local options = cmsgpack.unpack(ARGV.options)
if lacks_parent() then
  return -5
end
local sequence = next_number()
local cap = event_cap(KEYS.meta)

local id, job, reply = admit(sequence, options, cap)
if reply then
  return reply
end

call('ZADD', KEYS.waiting_children, born_at, id)
emit_capped(KEYS.events, cap, 'waiting-children', 'jobId', id)
return finish_add(id, job)
