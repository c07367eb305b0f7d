--- keys: wait, paused, meta, id, completed, delayed, active, events, marker
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include call
--- include plain_add
--- lazy add_standard: open_job, add_standard

-- specs/01-data-model-and-adding.md#sec-7-2. What other jobs than plain ones need is not even made for these.
local head, options = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[3])
if not is_plain_add(head, options, KEYS[4], KEYS[3]) then
  --@not-plain
  local open_job, add_standard = load_add_standard()
  open_job(head, ARGV[2])
  return add_standard(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], options)
end

local sequence = call('INCR', KEYS[4])
local settings = call('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap, held = settings[1], settings[2]
if not cap then
  --@default-cap
  cap = '10000'
  call('HSET', KEYS[3], 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV[2], sequence, KEYS[8])
if settings[3] and not held then
  --@concurrency
  held = call('LLEN', KEYS[7]) >= tonumber(settings[3])
end
local target = settings[2] and KEYS[2] or KEYS[1]
if options.lifo then
  --@lifo
  call('RPUSH', target, id)
else
  --@fifo
  call('LPUSH', target, id)
end
if not held then
  --@ready
  call('ZADD', KEYS[9], '0', '0')
end
call('XADD', KEYS[8], 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
