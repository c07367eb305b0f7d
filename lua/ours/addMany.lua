--- keys: wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc
--- args: rows (one of each job, see the record) ...
--- include adding_settings
--- include job_head
--- include added_jobs
--- flags: batch
--- include call
--- include count_together
--- include each_alone
--- include plain_count
--- include plain_ms
--- lazy add_rest: add_rest

-- specs/08-batches.md#add-many. Not one of BullMQ's scripts.
local count = #ARGV / rows.size

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
  local at = rows.size * number
  local packed = rows[at].options
  local kind, head = kinds[packed], nil
  if kind == nil then
    readable, kind = pcall(read_options, packed)
    kind = readable and kind
    kinds[packed] = kind
  end
  readable, head = pcall(unpack_packed, rows[at].job)
  if not (kind and readable and rows[at].kind == '0' and type(head) == 'table' and type(head.name) == 'string'
    and is_plain_ms(head.timestamp) and
    --- paste plain_head(head)
  ) then
    --@not-plain
    break
  end
  local id = head.id
  if id ~= '' then
    id = head.base .. id
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
local settings = redis.pcall('HMGET', KEYS.meta, 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings.cap
if not (cap and plain_count(cap)) or (settings.concurrency and not tonumber(settings.concurrency)) then
  --@odd-settings
  plain = 0
end
local last = plain > 0 and count_together(KEYS.id, plain)

local replies = {}
if not last then
  plain = 0
else
  local events, own, last_stamp, stamp = KEYS.events, taken[1], nil, nil
  local first = last - plain
  local fifo, lifo = {}, {}
  for number = 1, plain do
    local at = rows.size * number
    local head, packed = heads[number], rows[at].options
    local name, kind, id = head.name, kinds[packed], own and head.id or first + number
    local job = head.base .. id
    if not own then
      --- paste text_id(id)
    end
    if head.timestamp ~= last_stamp then
      last_stamp = head.timestamp
      stamp = last_stamp .. ''
    end
    local stored = redis.pcall('HMSET', job,
      --- paste job_fields(name, data = rows[at].data, options = kind[1], timestamp = stamp, delay = kind[2],
      ---   priority = kind[3])
    )
    if stored.err then
      --@refused
      replies[number] = alone_or_error(error, stored)
    else
      --- paste emit_added(events, id, name)
      call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
      local ends = kind[4] and lifo or fifo
      ends[#ends + 1] = id
      replies[number] = id .. ''
    end
  end
  --- when waiting_layout v5
  local target, pushed = settings.paused and KEYS.paused or KEYS.wait, #fifo + #lifo
  --- else
  --- paste target_list(paused = settings.paused, wait = KEYS.wait, set_aside = KEYS.paused)
  local pushed = #fifo + #lifo
  --- end
  local held = settings.paused or (settings.concurrency and call('LLEN', KEYS.active) >= tonumber(settings.concurrency))
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
    call('ZADD', KEYS.marker, '0', '0')
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
