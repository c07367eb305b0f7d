--- keys: repeats, delayed, wait, paused, meta, prioritized, marker, id, events, pc, active
--- args: slot (the next one, or empty), schedule (MessagePack map), scheduler (id), data
--- args: template (options, MessagePack map), options (of the job, MessagePack map), now, base
--- args: producer (key of the producing job, or empty; not used without write_nrjid)
--- include call
--- include erase_job
--- include event_cap
--- include scheduler_slot
--- include scheduler_iteration

local schedulers, meta = KEYS.repeats, KEYS.meta
--- when write_nrjid
local scheduler, data, base, producer = ARGV.scheduler, ARGV.data, ARGV.base, ARGV.producer
--- else
local scheduler, data, base = ARGV.scheduler, ARGV.data, ARGV.base
--- end
local record, id_stem = schedulers .. ':' .. scheduler, 'repeat:' .. scheduler .. ':'

local function is_taken(slot)
  return call('EXISTS', record .. ':' .. slot) == 1
end

-- specs/04-schedulers-flows-events.md#sec-1-6: gives whether the job had not started and is gone now.
local function take_back(id)
  for _, set in ipairs({ KEYS.delayed, KEYS.prioritized }) do
    if call('ZSCORE', set, id) then
      --@back-from-set
      erase_job(base, id)
      call('ZREM', set, id)
      return true
    end
  end
  --- when merging_pause
  for _, list in ipairs({ KEYS.wait, KEYS.paused }) do
    if call('LREM', list, '1', id) == 1 then
      --@back-from-either
      erase_job(base, id)
      return true
    end
  end
  --- else
  local list = KEYS.wait
  if call('HEXISTS', meta, 'paused') == 1 then
    --@paused
    list = KEYS.paused
  end
  if call('LREM', list, '1', id) == 1 then
    --@back-from-list
    erase_job(base, id)
    return true
  end
  --- end
  --@started
  return false
end

-- specs/04-schedulers-flows-events.md#sec-1-4: of the record before, only offset and count of iterations survive.
local function write_record(slot, schedule, template)
  call('ZADD', schedulers, slot, scheduler)
  local fields, count = { 'name', schedule.name }, 2
  local function add(name, value)
    fields[count + 1], fields[count + 2] = name, value
    count = count + 2
  end

  for _, name in ipairs({ 'tz', 'limit', 'pattern', 'startDate', 'endDate', 'every' }) do
    if schedule[name] then
      --@field
      add(name, schedule[name])
    end
  end
  if schedule.offset then
    --@offset
    add('offset', schedule.offset)
  else
    local before = call('HGET', record, 'offset')
    if before then
      --@offset-kept
      add('offset', tonumber(before))
    else
      --@no-offset
    end
  end
  local options = cjson.encode(template)
  if options ~= '{}' then
    --@template-options
    add('opts', options)
  end
  if data ~= '{}' then
    --@template-data
    add('data', data)
  end
  add('ic', call('HGET', record, 'ic') or '1')
  call('DEL', record)
  call('HMSET', record, unpack(fields, 1, count))
end

-- specs/04-schedulers-flows-events.md#sec-3-1
local template, options = cmsgpack.unpack(ARGV.template), cmsgpack.unpack(ARGV.options)
local cap = event_cap(meta)
local previous = tonumber(call('ZSCORE', schedulers, scheduler))
local schedule = cmsgpack.unpack(ARGV.schedule)
local now, every = tonumber(ARGV.now), schedule.every
-- looked into in any case: a number or true in its place makes the script fail
local fallback = (options['repeat'] or {}).offset
local slot, offset = ARGV.slot, schedule.offset or fallback or 0
--- unless scheduler_rules 5.62
local is_changed = false
--- end
if every then
  --@every
  --- when scheduler_rules 5.62
  slot, offset = next_slot(previous, every, now, offset, schedule.startDate)
  --- else
  local known = previous
  if previous and tonumber(call('HGET', record, 'every')) ~= every then
    --@changed
    known, is_changed = nil, true
  end
  slot, offset = next_slot(known, every, now, offset, schedule.startDate)
  --- end
else
  --@cron
end

--- when scheduler_rules 5.62
if previous and is_taken(previous) and take_back(id_stem .. previous) then
  --@same-slot
  slot = previous
--- else
-- specs/06-later-versions.md#sec-11-15
local is_replaced = previous and is_taken(previous) and take_back(id_stem .. previous)
if is_replaced then
  if every and not is_changed then
    --@every-same-slot
    slot = previous
  end
--- end
else
  --@new-slot
  schedule.offset = offset
end
--- when scheduler_rules 5.62
if is_taken(slot) then
  if not every then
    --@job-exists
    return -10
  end
  slot = slot + every
  if is_taken(slot) then
    --@slots-busy
    return -11
  end
  --@slot-after
end

local delay, id = math.max(slot - now, 0), id_stem .. slot
--- else
if every then
  local steps = 0
  while is_taken(slot) do
    if steps == 32 then
      --@all-slots-busy
      return -11
    end
    --@slot-later
    slot, steps = slot + every, steps + 1
  end
end

local delay, id = math.max(slot - now, 0), id_stem .. slot
if not every and not is_replaced and is_taken(slot) then
  --@cron-job-exists
  return -10
end
--- end
write_record(slot, schedule, template)
call('INCR', KEYS.id)
create_iteration(record .. ':' .. slot, id, schedule.name, data, options, now, delay, scheduler, cap)
--- when write_nrjid
if producer ~= '' then
  --@producer
  call('HSET', producer, 'nrjid', id)
else
  --@no-producer
end
--- end
return { id, delay }
