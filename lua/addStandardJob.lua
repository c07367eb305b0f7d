--- keys: wait, paused, meta, id, completed, delayed, active, events, marker
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include call
--- lazy add_standard: open_job, add_standard

-- specs/01-data-model-and-adding.md#sec-7-2. What a job with a parent, a scheduler, deduplication or an id that is
-- taken (or will be, by the counter or the settings) needs, is not even made for others.
local head, options = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[3])
local base, id = head[1], head[2]
if type(base) ~= 'string' or type(id) ~= 'string' or head[5] ~= nil or head[6] ~= nil or head[8] or options.de
  or (id ~= '' and (call('EXISTS', base .. id) == 1 or base .. id == KEYS[3] or base .. id == KEYS[4])) then
  --@not-plain
  local open_job, add_standard = load_add_standard()
  open_job(head, ARGV[2])
  return add_standard(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], options)
end

local events, sequence = KEYS[8], call('INCR', KEYS[4])
local settings = call('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings[1]
if not cap then
  --@default-cap
  cap = '10000'
  call('HSET', KEYS[3], 'opts.maxLenEvents', cap)
end
local job
if id == '' then
  --@generated-id
  id = sequence
  job = base .. id
  if math.abs(id) < 100000000000000 then
    -- both text forms are the same here (specs/01-data-model-and-adding.md#sec-2-6), and text is cheaper to pass on
    id = id .. ''
  end
else
  --@custom-id
  job = base .. id
end
-- specs/01-data-model-and-adding.md#sec-6-3
call('HMSET', job, 'name', head[3], 'data', ARGV[2], 'opts', cjson.encode(options), 'timestamp', head[4], 'delay',
  options.delay or '0', 'priority', options.priority or '0')
call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', head[3])
local held = settings[2]
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
call('XADD', events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
