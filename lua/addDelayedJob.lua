--- keys: marker, meta, id, delayed, completed, events
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include call
--- include delay_slot
--- include mark_later
--- include plain_add
--- lazy add_delayed: open_job, add_delayed

-- specs/01-data-model-and-adding.md#sec-7-3. What other jobs than plain ones need is not even made for these.
local head = cmsgpack.unpack(ARGV[1])
local readable, options = pcall(cmsgpack.unpack, ARGV[3])
if not (readable and type(options) == 'table' and is_plain_add(head, options, KEYS[3], KEYS[2])) then
  --@not-plain
  local open_job, add_delayed = load_add_delayed()
  open_job(head, ARGV[2])
  return add_delayed(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[3])
end

local delayed, sequence = KEYS[4], call('INCR', KEYS[3])
local cap = call('HGET', KEYS[2], 'opts.maxLenEvents')
if not cap then
  --@default-cap
  cap = '10000'
  call('HSET', KEYS[2], 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV[2], sequence, KEYS[6])
-- the event tells the absolute due time
local score, due = delay_slot(delayed, head[4], tonumber(options.delay or 0))
call('ZADD', delayed, score, id)
call('XADD', KEYS[6], 'MAXLEN', '~', cap, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
mark_later(KEYS[1], delayed)
return id .. ''
