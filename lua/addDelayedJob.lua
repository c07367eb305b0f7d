--- keys: marker, meta, id, delayed, completed, events
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include add_job
--- include event_cap
--- include place_delayed

-- specs/01-data-model-and-adding.md#sec-7-3
local delayed, completed, events = KEYS[4], KEYS[5], KEYS[6]
if lacks_parent() then
  return -5
end
local sequence = call('INCR', KEYS[3])
local cap = event_cap(KEYS[2])
-- decoded only here: undecodable options leave a counted id behind
local options = cmsgpack.unpack(ARGV[3])

local id, job, reply = admit(sequence, options, completed, delayed, events, cap)
if reply then
  return reply
end

place_delayed(delayed, KEYS[1], events, cap, id, born_at, tonumber(options.delay or 0))
return finish_add(id, job)
