--- keys: wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc
--- args: kind (0 standard, 1 delayed, 2 prioritized), job (MessagePack array), data (JSON), options (MessagePack map) ...
--- include call
--- include count_together
--- include each_alone
--- include plain_count
--- include plain_ms
--- lazy add_rest: add_rest

-- specs/08-batches.md#add-many. Not one of BullMQ's scripts.
local count = #ARGV / 4

-- What the plain jobs have in common: the texts of their options, false for those that are not plain.
local function read_options(packed)
  local options = cmsgpack.unpack(packed)
  local delay, priority = options.delay or '0', options.priority or '0'
  return not options.de and { cjson.encode(options), delay .. '' and delay, priority .. '' and priority, options.lifo }
end

-- specs/08-batches.md#plain-jobs: standard jobs at the beginning of the call that touch nothing but what all of them
-- touch. Either all get an id, or each brings one of its own that is free.
local heads, kinds, taken, plain, readable = {}, {}, {}, 0, false
local unpack_packed = cmsgpack.unpack
for number = 1, count do
  local at = 4 * number
  local packed = ARGV[at]
  local kind, head = kinds[packed], nil
  if kind == nil then
    readable, kind = pcall(read_options, packed)
    kind = readable and kind
    kinds[packed] = kind
  end
  readable, head = pcall(unpack_packed, ARGV[at - 2])
  if not (kind and readable and ARGV[at - 3] == '0' and type(head) == 'table' and type(head[1]) == 'string'
    and type(head[2]) == 'string' and type(head[3]) == 'string' and is_plain_ms(head[4]))
    or head[5] ~= nil or head[6] ~= nil or head[8] then
    --@not-plain
    break
  end
  local id = head[2]
  if id ~= '' then
    id = head[1] .. id
    if taken[id] or #taken < plain then
      --@id-again
      break
    end
    taken[number], taken[id] = id, true
  elseif taken[1] then
    --@id-wanted
    break
  end
  heads[number], plain = head, number
end
if taken[1] then
  for number = 1, #KEYS do
    local name = KEYS[number]
    if taken[name] then
      --@name-of-a-key
      plain = 0
    end
  end
  if call('EXISTS', unpack(taken)) > 0 then
    --@id-taken
    plain = 0
  end
end
local settings = redis.pcall('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings[1]
if not (cap and plain_count(cap)) or (settings[3] and not tonumber(settings[3])) then
  --@odd-settings
  plain = 0
end
local last = plain > 0 and count_together(KEYS[4], plain)

local replies = {}
if not last then
  plain = 0
else
  local events, own, last_stamp, stamp = KEYS[8], taken[1], nil, nil
  local first = last - plain
  local fifo, lifo = {}, {}
  for number = 1, plain do
    local at = 4 * number
    local head, packed = heads[number], ARGV[at]
    local name, kind, id = head[3], kinds[packed], own and head[2] or first + number
    local job = head[1] .. id
    if not own and math.abs(id) < 100000000000000 then
      -- both text forms are the same here (specs/01-data-model-and-adding.md#sec-2-6), and text is cheaper to pass on
      id = id .. ''
    end
    if head[4] ~= last_stamp then
      last_stamp = head[4]
      stamp = last_stamp .. ''
    end
    local stored = redis.pcall('HMSET', job, 'name', name, 'data', ARGV[at - 1], 'opts', kind[1],
      'timestamp', stamp, 'delay', kind[2], 'priority', kind[3])
    if stored.err then
      --@refused
      replies[number] = alone_or_error(error, stored)
    else
      call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
      call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
      local ends = kind[4] and lifo or fifo
      ends[#ends + 1] = id
      replies[number] = id .. ''
    end
  end
  local target, pushed = settings[2] and KEYS[2] or KEYS[1], #fifo + #lifo
  local held = settings[2] or (settings[3] and call('LLEN', KEYS[7]) >= tonumber(settings[3]))
  if fifo[1] then
    --@fifo
    call('LPUSH', target, unpack(fifo))
  end
  if lifo[1] then
    --@lifo
    call('RPUSH', target, unpack(lifo))
  end
  if pushed > 0 and not held then
    --@ready
    call('ZADD', KEYS[9], '0', '0')
  end
  -- each waiting event trims, a limited number: specs/08-batches.md#postponed
  for _ = 1, pushed do
    if call('XTRIM', events, 'MAXLEN', '~', cap) == 0 then
      break
    end
  end
end
if plain < count then
  --@rest
  load_add_rest()(plain + 1, count, replies)
end
return replies
