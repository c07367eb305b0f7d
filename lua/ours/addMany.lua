--- keys: wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc, waiting_children
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
--- include priority_step
--- lazy add_rest: add_rest
--- lazy delay_slot: delay_slot
--- lazy mark_delayed: mark_delayed

-- specs/08-batches.md#add-many. Not one of BullMQ's scripts.
local count = #ARGV / rows.size

-- Jobs with children at the beginning are added first, one by one.
local replies, above, add_rest = {}, 0, nil
local at = rows.size
while rows[at].kind == '3' do
  above = above + 1
  at = at + rows.size
end
if above > 0 then
  --@above
  add_rest = load_add_rest()
  add_rest(1, above, replies)
end

-- What the plain jobs have in common: the texts of their options, false for those that are not plain.
local function read_options(packed)
  local options = cmsgpack.unpack(packed)
  local delay, priority = options.delay or '0', options.priority or '0'
  return not options.de and { cjson.encode(options), delay .. '' and delay, priority .. '' and priority, options.lifo }
end

-- specs/08-batches.md#plain-jobs: jobs of one kind, the first without children, that touch nothing but what all of them
-- touch. Either all get an id, or each brings one of its own that is free. Either none has a parent, or all the same.
local heads, kinds, links, taken, plain, readable = {}, {}, {}, {}, 0, false
local sort, parent, pending = rows[at].kind, nil, nil
local unpack_packed = cmsgpack.unpack
for number = 1, count - above do
  at = rows.size * (above + number)
  local packed = rows[at].options
  local kind, head = kinds[packed], nil
  if kind == nil then
    readable, kind = pcall(read_options, packed)
    kind = readable and kind
    if kind then
      -- how late, or how urgent; a standard job may say anything
      kind[5] = sort == '0' or tonumber(sort == '1' and kind[2] or kind[3])
      kind = kind[5] and kind
    end
    kinds[packed] = kind
  end
  readable, head = pcall(unpack_packed, rows[at].job)
  if not (kind and readable and rows[at].kind == sort and type(head) == 'table' and type(head.name) == 'string'
    and is_plain_ms(head.timestamp) and type(head.base) == 'string' and type(head.id) == 'string' and not head.scheduler
  ) then
    --@not-plain
    break
  end
  if number == 1 and head.parent ~= nil then
    parent, pending = head.parent, head.pending
  end
  if head.parent ~= parent or head.pending ~= pending then
    --@other-parent
    break
  end
  if parent ~= nil then
    readable, links[number] = pcall(cjson.encode, head.link)
    if not readable then
      break
    end
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
if sort ~= '0' and sort ~= '1' and sort ~= '2' then
  --@odd-kind
  plain = 0
end
if parent ~= nil and plain > 0 then
  local found = type(parent) == 'string' and pending == parent .. ':dependencies' and not taken[pending]
    and call('EXISTS', parent) == 1 and call('TYPE', pending).ok
  if found ~= 'set' and found ~= 'none' then
    --@odd-parent
    plain = 0
  end
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
if sort == '2' and plain > 0 then
  local turn = redis.pcall('GET', KEYS.pc)
  if turn and not (type(turn) == 'string' and plain_count(turn)) then
    --@odd-turn
    plain = 0
  end
end
local last = plain > 0 and count_together(KEYS.id, plain)

if not last then
  plain = 0
else
  local events, own, last_stamp, stamp = KEYS.events, taken[1], nil, nil
  local first, stored_count = last - plain, 0
  local fifo, lifo, urgent, children = {}, {}, {}, {}
  local slot, score, due, delay, placed_at
  if sort == '1' then
    slot = load_delay_slot()
  end
  for number = 1, plain do
    at = rows.size * (above + number)
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
    local stored
    if parent then
      stored = redis.pcall('HMSET', job,
        --- paste job_fields(name, data = rows[at].data, options = kind[1], timestamp = stamp, delay = kind[2],
        ---   priority = kind[3])
        , 'parentKey', parent, 'parent', links[number]
      )
    else
      stored = redis.pcall('HMSET', job,
        --- paste job_fields(name, data = rows[at].data, options = kind[1], timestamp = stamp, delay = kind[2],
        ---   priority = kind[3])
      )
    end
    if stored.err then
      --@refused
      replies[above + number] = alone_or_error(error, stored)
    else
      --- paste emit_added(events, id, name)
      if sort == '1' then
        -- The place of the last one is the last of its moment, whatever else was there.
        if head.timestamp == placed_at and delay == kind[5] then
          if score < (due + 1) * 4096 - 1 then
            score = score + 1
          end
        else
          placed_at, delay = head.timestamp, kind[5]
          score, due = slot(KEYS.delayed, placed_at, delay)
        end
        call('ZADD', KEYS.delayed, score, id)
        call('XADD', events, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
      else
        call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
        if sort == '2' then
          urgent[2 * stored_count + 1], urgent[2 * stored_count + 2] = kind[5] * PRIORITY_STEP, id
        else
          local ends = kind[4] and lifo or fifo
          ends[#ends + 1] = id
        end
      end
      stored_count = stored_count + 1
      if parent then
        children[stored_count] = job
      end
      replies[above + number] = id .. ''
    end
  end
  if stored_count > 0 then
    if children[1] then
      --@children
      call('SADD', pending, unpack(children))
      --- when deferred_parent_release
      -- A parent that this call has added now waits for them: there is nothing to release.
      at = rows.size * count
      if above + plain + 1 == count and rows[at].kind == '4' and rows[at].data == replies[above]
        and parent == rows[at].job .. ':' .. rows[at].data then
        --@nothing-to-release
        replies[count] = false
        count = above + plain
      end
      --- end
    end
    if slot then
      --@delayed
      load_mark_delayed()(KEYS.marker, KEYS.delayed)
    else
      --- when waiting_layout v5
      local target = settings.paused and KEYS.paused or KEYS.wait
      --- else
      --- paste target_list(paused = settings.paused, wait = KEYS.wait, set_aside = KEYS.paused)
      --- end
      if fifo[1] then
        --@fifo
        call('LPUSH', target, unpack(fifo))
      end
      if lifo[1] then
        --@lifo
        call('RPUSH', target, unpack(lifo))
      end
      if urgent[1] then
        --@prioritized
        local turn = call('INCRBY', KEYS.pc, stored_count) - stored_count
        for number = 1, stored_count do
          urgent[2 * number - 1] = urgent[2 * number - 1] + (turn + number) % PRIORITY_STEP
        end
        call('ZADD', KEYS.prioritized, unpack(urgent))
      end
      if not settings.paused
        and not (settings.concurrency and call('LLEN', KEYS.active) >= tonumber(settings.concurrency)) then
        --@ready
        call('ZADD', KEYS.marker, '0', '0')
      end
    end
    -- each event of a waiting or delayed job trims, a limited number: specs/08-batches.md#postponed
    for _ = 1, stored_count do
      if call('XTRIM', events, 'MAXLEN', '~', cap) == 0 then
        break
      end
    end
  end
end
plain = above + plain
if plain < count then
  --@rest
  add_rest = add_rest or load_add_rest()
  add_rest(plain + 1, count, replies)
end
return replies
