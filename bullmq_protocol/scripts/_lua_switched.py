"""Hold what switches change of the scripts; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "addDelayedJob": """\
--- keys: marker meta id delayed completed events
--- args: job data options
--- include job_head
--- include call
--- include delay_slot
--- include mark_delayed
--- include plain_add
--- lazy add_delayed: open_job, add_delayed
local head = cmsgpack.unpack(ARGV.job)
local _, options = pcall(cmsgpack.unpack, ARGV.options)
if not is_plain_add(head, options, KEYS.id, KEYS.meta) then
  local open_job, add_delayed = load_add_delayed()
  open_job(head, ARGV.data)
  return add_delayed(ARGV.options)
end
local delayed, sequence = KEYS.delayed, call('INCR', KEYS.id)
local cap = call('HGET', KEYS.meta, 'opts.maxLenEvents')
if not cap then
  cap = '10000'
  call('HSET', KEYS.meta, 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV.data, sequence, KEYS.events)
local score, due = delay_slot(delayed, head[4], tonumber(options.delay or 0))
call('ZADD', delayed, score, id)
call('XADD', KEYS.events, 'MAXLEN', '~', cap, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
mark_delayed(KEYS.marker, delayed)
return id .. ''
""",
        "addJobScheduler": """\
--- keys: repeats delayed wait paused meta prioritized marker id events pc active
--- args: slot schedule scheduler data
--- args: template options now base
--- args: producer
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
local function take_back(id)
  for _, set in ipairs({ KEYS.delayed, KEYS.prioritized }) do
    if call('ZSCORE', set, id) then
      erase_job(base, id)
      call('ZREM', set, id)
      return true
    end
  end
--- when merging_pause
  for _, list in ipairs({ KEYS.wait, KEYS.paused }) do
    if call('LREM', list, '1', id) == 1 then
      erase_job(base, id)
      return true
    end
  end
--- else
  local list = KEYS.wait
  if call('HEXISTS', meta, 'paused') == 1 then
    list = KEYS.paused
  end
  if call('LREM', list, '1', id) == 1 then
    erase_job(base, id)
    return true
  end
--- end
  return false
end
local function write_record(slot, schedule, template)
  call('ZADD', schedulers, slot, scheduler)
  local fields, count = { 'name', schedule.name }, 2
  local function add(name, value)
    fields[count + 1], fields[count + 2] = name, value
    count = count + 2
  end
  for _, name in ipairs({ 'tz', 'limit', 'pattern', 'startDate', 'endDate', 'every' }) do
    if schedule[name] then
      add(name, schedule[name])
    end
  end
  if schedule.offset then
    add('offset', schedule.offset)
  else
    local before = call('HGET', record, 'offset')
    if before then
      add('offset', tonumber(before))
    else
    end
  end
  local options = cjson.encode(template)
  if options ~= '{}' then
    add('opts', options)
  end
  if data ~= '{}' then
    add('data', data)
  end
  add('ic', call('HGET', record, 'ic') or '1')
  call('DEL', record)
  call('HMSET', record, unpack(fields, 1, count))
end
local template, options = cmsgpack.unpack(ARGV.template), cmsgpack.unpack(ARGV.options)
local cap = event_cap(meta)
local previous = tonumber(call('ZSCORE', schedulers, scheduler))
local schedule = cmsgpack.unpack(ARGV.schedule)
local now, every = tonumber(ARGV.now), schedule.every
local fallback = (options['repeat'] or {}).offset
local slot, offset = ARGV.slot, schedule.offset or fallback or 0
--- unless scheduler_rules 5.62
local is_changed = false
--- end
if every then
--- when scheduler_rules 5.62
  slot, offset = next_slot(previous, every, now, offset, schedule.startDate)
--- else
  local known = previous
  if previous and tonumber(call('HGET', record, 'every')) ~= every then
    known, is_changed = nil, true
  end
  slot, offset = next_slot(known, every, now, offset, schedule.startDate)
--- end
else
end
--- when scheduler_rules 5.62
if previous and is_taken(previous) and take_back(id_stem .. previous) then
  slot = previous
--- else
local is_replaced = previous and is_taken(previous) and take_back(id_stem .. previous)
if is_replaced then
  if every and not is_changed then
    slot = previous
  end
--- end
else
  schedule.offset = offset
end
--- when scheduler_rules 5.62
if is_taken(slot) then
  if not every then
    return -10
  end
  slot = slot + every
  if is_taken(slot) then
    return -11
  end
end
local delay, id = math.max(slot - now, 0), id_stem .. slot
--- else
if every then
  local steps = 0
  while is_taken(slot) do
    if steps == 32 then
      return -11
    end
    slot, steps = slot + every, steps + 1
  end
end
local delay, id = math.max(slot - now, 0), id_stem .. slot
if not every and not is_replaced and is_taken(slot) then
  return -10
end
--- end
write_record(slot, schedule, template)
call('INCR', KEYS.id)
create_iteration(record .. ':' .. slot, id, schedule.name, data, options, now, delay, scheduler, cap)
--- when write_nrjid
if producer ~= '' then
  call('HSET', producer, 'nrjid', id)
else
end
--- end
return { id, delay }
""",
        "addParentJob": """\
--- keys: meta id delayed waiting_children completed events
--- args: job data options
--- flags: flow_node
--- include add_job
--- include event_cap
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
""",
        "addPrioritizedJob": """\
--- keys: marker meta id prioritized delayed completed active events pc
--- args: job data options
--- include adding_settings
--- include call
--- include zadd_by_priority
--- include plain_add
--- lazy add_prioritized: open_job, add_prioritized
local head, options = cmsgpack.unpack(ARGV.job), cmsgpack.unpack(ARGV.options)
if not is_plain_add(head, options, KEYS.id, KEYS.meta) then
  local open_job, add_prioritized = load_add_prioritized()
  open_job(head, ARGV.data)
  return add_prioritized(options)
end
local sequence = call('INCR', KEYS.id)
local settings = call('HMGET', KEYS.meta, 'opts.maxLenEvents', 'paused', 'concurrency')
local cap, held = settings[1], settings[2]
if not cap then
  cap = '10000'
  call('HSET', KEYS.meta, 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV.data, sequence, KEYS.events)
if settings[3] and not held then
  held = call('LLEN', KEYS.active) >= tonumber(settings[3])
end
zadd_by_priority(KEYS.prioritized, KEYS.pc, options.priority or 0, id)
if not held then
  call('ZADD', KEYS.marker, '0', '0')
end
call('XADD', KEYS.events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
""",
        "addRepeatableJob": """\
--- keys: repeats delayed
--- args: slot schedule concatenated_key member base
--- include call
--- include erase_job
local members, delayed = KEYS.repeats, KEYS.delayed
local slot, oldest, member, base = ARGV.slot, ARGV.concatenated_key, ARGV.member, ARGV.base
local before = call('ZSCORE', members, member)
if before then
  local id = 'repeat:' .. member .. ':' .. before
  if call('ZSCORE', delayed, id) and call('EXISTS', members .. ':' .. member .. ':' .. slot) == 0 then
    erase_job(base, id)
    call('ZREM', delayed, id)
  else
  end
end
if call('ZSCORE', members, oldest) then
  member = oldest
else
end
call('ZADD', members, slot, member)
local schedule = cmsgpack.unpack(ARGV.schedule)
local fields, count = { 'name', schedule.name }, 2
for _, name in ipairs({ 'tz', 'pattern', 'endDate', 'every' }) do
  if schedule[name] then
    fields[count + 1], fields[count + 2] = name, schedule[name]
    count = count + 2
  end
end
call('HMSET', members .. ':' .. member, unpack(fields, 1, count))
return member
""",
        "addStandardJob": """\
--- keys: wait paused meta id completed delayed active events marker
--- args: job data options
--- include adding_settings
--- include call
--- include plain_add
--- lazy add_standard: open_job, add_standard
local head, options = cmsgpack.unpack(ARGV.job), cmsgpack.unpack(ARGV.options)
if not is_plain_add(head, options, KEYS.id, KEYS.meta) then
  local open_job, add_standard = load_add_standard()
  open_job(head, ARGV.data)
  return add_standard(options)
end
local sequence = call('INCR', KEYS.id)
local settings = call('HMGET', KEYS.meta, 'opts.maxLenEvents', 'paused', 'concurrency')
local cap, held = settings[1], settings[2]
if not cap then
  cap = '10000'
  call('HSET', KEYS.meta, 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV.data, sequence, KEYS.events)
if settings[3] and not held then
  held = call('LLEN', KEYS.active) >= tonumber(settings[3])
end
--- when waiting_layout adaptive
local target = KEYS.wait
if settings[2] and (call('EXISTS', KEYS.paused) == 1 or call('EXISTS', KEYS.wait) == 0) then
  target = KEYS.paused
end
--- elsewhen waiting_layout v6
local target = KEYS.wait
--- else
local target = settings[2] and KEYS.paused or KEYS.wait
--- end
if options.lifo then
  call('RPUSH', target, id)
else
  call('LPUSH', target, id)
end
if not held then
  call('ZADD', KEYS.marker, '0', '0')
end
call('XADD', KEYS.events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
""",
        "changePriority": """\
--- keys: wait paused meta prioritized active pc marker
--- args: priority base id first
--- include call
--- include queue_gate
--- include mark_ready
--- include zadd_by_priority
local prioritized, id = KEYS.prioritized, ARGV.id
local job, priority, first = ARGV.base .. id, tonumber(ARGV.priority), ARGV.first == '1'
if call('EXISTS', job) == 0 then
  return -1
end
local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
local waiting = true
if call('ZREM', prioritized, id) > 0 then
--- when waiting_layout v6
elseif call('LREM', KEYS.wait, '-1', id) > 0 then
--- elsewhen merging_pause
elseif call('LREM', KEYS.wait, '-1', id) > 0 or call('LREM', KEYS.paused, '-1', id) > 0 then
--- else
elseif call('LREM', target, '-1', id) > 0 then
--- end
else
  waiting = false
end
--- when waiting_layout adaptive
if waiting then
  target = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
end
--- end
if waiting and priority ~= 0 and first then
  call('ZADD', prioritized, priority * PRIORITY_STEP, id)
elseif waiting then
  if priority ~= 0 then
    zadd_by_priority(prioritized, KEYS.pc, priority, id)
  elseif first then
    call('RPUSH', target, id)
  else
    call('LPUSH', target, id)
  end
  mark_ready(KEYS.marker, held)
end
call('HSET', job, 'priority', priority)
return 0
""",
        "cleanJobsInSet": """\
--- keys: source events repeats
--- args: base newest limit state
--- include call
--- include emit
--- include erase_job
--- include remove_members
--- include scheduler_current
local source, base, newest, limit, state = KEYS.source, ARGV.base, ARGV.newest, tonumber(ARGV.limit), ARGV.state
local limited = limit > 0
local erased = {}
local function is_recent(job, ...)
  local ages = call('HMGET', job, ...)
  for index = 1, #ages do
    local age = ages[index]
    if age then
      return age > newest
    end
  end
  return false
end
local function is_kept(id, ...)
  local job = base .. id
  if state == 'active' and call('EXISTS', job .. ':lock') == 1 then
    return true
  end
  return is_current_iteration(job, id, KEYS.repeats) or is_recent(job, ...)
end
local function sweep(ids, kept, erasing)
  for index = 1, #ids do
    local id = ids[index]
    if kept(id) then
    else
      erasing(index)
      erase_job(base, id)
      erased[#erased + 1] = id
    end
  end
end
local function sweep_list()
  local ids = call('LRANGE', source, limited and -limit or '0', '-1')
  sweep(ids, function(id)
    return is_kept(id, 'finishedOn', 'processedOn', 'timestamp')
  end, function(index)
    call('LSET', source, index - 1 - #ids, '')
  end)
  call('LREM', source, '0', '')
end
local function sweep_set(highest, kept)
  local ids
  if limited then
    ids = call('ZRANGEBYSCORE', source, '0', highest, 'LIMIT', '0', limit)
  else
    ids = call('ZRANGEBYSCORE', source, '0', highest)
  end
  sweep(ids, kept, function() end)
  remove_members(source, erased)
end
if state == 'wait' or state == 'paused' or state == 'active' then
  sweep_list()
elseif state == 'delayed' then
  sweep_set('+inf', function(id)
    return is_kept(id, 'processedOn', 'timestamp')
  end)
elseif state == 'prioritized' then
  sweep_set('+inf', function(id)
    return is_kept(id, 'timestamp')
  end)
else
  sweep_set(newest, function()
    return false
  end)
end
emit(KEYS.events, 'cleaned', 'count', #erased)
return erased
""",
        "drain": """\
--- keys: wait paused delayed prioritized repeats
--- args: base with_delayed
--- include call
--- include erase_job
--- include remove_members
local current = {}
local schedulers = call('ZRANGE', KEYS.repeats, '0', '-1', 'WITHSCORES')
for index = 1, #schedulers, 2 do
  local id = 'repeat:' .. schedulers[index] .. ':' .. schedulers[index + 1]
  current[id] = true
end
local function erase_others(ids)
  local erased = {}
  for index = 1, #ids do
    local id = ids[index]
    if current[id] then
    else
      erased[#erased + 1] = id
      erase_job(ARGV.base, id)
    end
  end
  return erased
end
local function drain_list(list)
  call('LTRIM', list, #erase_others(call('LRANGE', list, '0', '-1')), '-1')
end
local function drain_set(set)
  remove_members(set, erase_others(call('ZRANGE', set, '0', '-1')))
end
drain_list(KEYS.wait)
drain_list(KEYS.paused)
if ARGV.with_delayed == '1' then
  drain_set(KEYS.delayed)
else
end
drain_set(KEYS.prioritized)
""",
        "extendLocks": """\
--- keys: stalled
--- args: base tokens ids duration
--- include call
local base, duration = ARGV.base, ARGV.duration
local tokens, ids = cmsgpack.unpack(ARGV.tokens), cmsgpack.unpack(ARGV.ids)
local lost, renewed = {}, {}
local function leave_stalled()
  if renewed[1] then
    call('SREM', KEYS.stalled, unpack(renewed))
    renewed = {}
  end
end
for from = 1, #ids, 1000 do
  local last = math.min(from + 999, #ids)
  local locks = {}
  for index = from, last do
    local id = ids[index]
    locks[index - from + 1] = base .. (type(id) == 'string' and id or '') .. ':lock'
  end
  local owners = call('MGET', unpack(locks))
  for index = from, last do
    local id, token, owner = ids[index], tokens[index], owners[index - from + 1]
    if not owner or type(id) ~= 'string' then
      leave_stalled()
      owner = call('GET', base .. id .. ':lock')
    end
--- when stalled_exemption live-scheduler
    if owner and owner == token then
--- else
    if owner == token then
--- end
      call('SET', base .. id .. ':lock', token, 'PX', duration)
      renewed[#renewed + 1] = id
      if index == 1 then
        leave_stalled()
      end
    else
      lost[#lost + 1] = id
    end
  end
  leave_stalled()
end
return lost
""",
        "getCounts": """\
--- keys: base
--- args: states
--- include call
--- include drop_old_marker
local function count_list(list)
  if drop_old_marker(list) then
    return 0
  end
  return call('LLEN', list)
end
local counts = {}
--- when counts_cut_off
local cut = tonumber(ARGV.states)
local before = cut and 1 or 0
for index = 1, #ARGV - before do
  local state = ARGV[index + before]
--- else
for index, state in ipairs(ARGV) do
--- end
  local key = KEYS.base .. state
  if state == 'wait' or state == 'paused' then
    counts[index] = count_list(key)
  elseif state == 'active' then
    counts[index] = call('LLEN', key)
--- when counts_cut_off
  elseif cut and state == 'delayed' then
    counts[index] = call('ZCOUNT', key, '-inf', cut * 4096 - 1)
--- end
  else
    counts[index] = call('ZCARD', key)
  end
end
return counts
""",
        "getCountsPerPriority": """\
--- keys: wait
--- unless waiting_layout v6
--- keys: paused meta
--- end
--- keys: prioritized
--- args: priorities
--- include call
--- include priority_step
local function count_unprioritized()
--- when waiting_layout v6
  return call('LLEN', KEYS.wait)
--- elsewhen merging_pause
  return call('LLEN', KEYS.wait) + call('LLEN', KEYS.paused)
--- else
  if call('HEXISTS', KEYS.meta, 'paused') == 1 then
    return call('LLEN', KEYS.paused)
  end
  return call('LLEN', KEYS.wait)
--- end
end
local counts = {}
for index, text in ipairs(ARGV) do
  local priority = tonumber(text)
  if priority == 0 then
    counts[index] = count_unprioritized()
  else
    local lowest = priority * PRIORITY_STEP
    counts[index] = call('ZCOUNT', KEYS.prioritized, lowest, lowest + PRIORITY_STEP - 1)
  end
end
return counts
""",
        "moveJobFromActiveToWait": """\
--- keys: active wait stalled paused meta limiter prioritized marker events
--- args: id token job
--- include call
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready
--- include priority_step
--- include priority_of
--- include release_lock
local active, meta, id, job = KEYS.active, KEYS.meta, ARGV.id, ARGV.job
if call('EXISTS', job) == 0 then
  return -1
end
local refusal = release_lock(job, KEYS.stalled, ARGV.token, id)
if refusal then
  return refusal
end
if call('LREM', active, '1', id) > 0 then
  local target, held = queue_gate(meta, active, KEYS.wait, KEYS.paused)
  local priority = priority_of(job)
  if priority > 0 then
    call('ZADD', KEYS.prioritized, priority * PRIORITY_STEP, id)
  else
    call('RPUSH', target, id)
    mark_ready(KEYS.marker, held)
  end
  emit_capped(KEYS.events, event_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
else
end
local remaining = call('PTTL', KEYS.limiter)
if remaining > 0 then
  return remaining
end
return 0
""",
        "moveJobsToWait": """\
--- keys: base events source wait paused meta active marker
--- args: size highest_score state
--- include call
--- include each_batch
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready
--- when single_retry 6.3
--- include pending_again
--- end
local source, size, state = KEYS.source, tonumber(ARGV.size), ARGV.state
local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
local ids = call('ZRANGEBYSCORE', source, '0', tonumber(ARGV.highest_score), 'LIMIT', '0', size)
if ids[1] then
  local outcome
  if state == 'failed' then
    outcome = 'failedReason'
  elseif state == 'completed' then
    outcome = 'returnvalue'
  else
  end
  for index = 1, outcome and #ids or 0 do
    call('HDEL', KEYS.base .. ids[index], 'finishedOn', 'processedOn', outcome)
--- when single_retry 6.3
    pending_again(KEYS.base .. ids[index], state)
--- end
  end
  local cap = event_cap(KEYS.meta)
  for index = 1, #ids do
    emit_capped(KEYS.events, cap, 'waiting', 'jobId', ids[index], 'prev', state)
  end
  each_batch(ids, function(...)
    call('ZREM', source, ...)
    call('LPUSH', target, ...)
  end)
  mark_ready(KEYS.marker, held)
else
end
if #ids >= size then
  return 1
end
return 0
""",
        "moveStalledJobsToWait": """\
--- keys: stalled wait active stalled_check meta paused marker events
--- when stalled_exemption live-scheduler
--- keys: repeats
--- end
--- args: maximum base now interval
--- include call
--- include emit
--- include queue_gate
--- include mark_ready
--- include trim_events
local limit, base = ARGV.maximum, ARGV.base
local stalled, active, events = KEYS.stalled, KEYS.active, KEYS.events
local recovered = {}
--- when stalled_exemption live-scheduler
local function is_exempt(job)
  local scheduler = call('HGET', job, 'rjk')
  if not scheduler then
    return false
  end
  if call('EXISTS', KEYS.repeats .. ':' .. scheduler) == 1 then
    return true
  end
  return call('ZSCORE', KEYS.repeats, scheduler) ~= false
end
--- else
local function is_exempt(job)
  local text = call('HGET', job, 'opts')
  local rule = text and cjson.decode(text)['repeat']
  return rule ~= nil and rule ~= false
end
--- end
local function recover(id)
  local job = base .. id
  if call('EXISTS', job .. ':lock') == 1 then
    return
  end
  if call('LREM', active, '1', id) == 0 then
    return
  end
  local count = call('HINCRBY', job, 'stc', '1')
  local exempt = is_exempt(job)
  if count > tonumber(limit) then
    if exempt then
    else
      call('HSET', job, 'defa', 'job stalled more than allowable limit')
    end
  else
  end
  local target, held = queue_gate(KEYS.meta, active, KEYS.wait, KEYS.paused)
  call('RPUSH', target, id)
  mark_ready(KEYS.marker, held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'active')
  emit(events, 'stalled', 'jobId', id)
  recovered[#recovered + 1] = id
end
if call('EXISTS', KEYS.stalled_check) == 1 then
  return recovered
end
call('SET', KEYS.stalled_check, ARGV.now, 'PX', ARGV.interval)
trim_events(KEYS.meta, events)
local suspects = call('SMEMBERS', stalled)
if suspects[1] then
  call('DEL', stalled)
end
for _, id in ipairs(suspects) do
  if string.sub(id, 1, 2) == '0:' then
    call('LREM', active, '1', id)
  else
    recover(id)
  end
end
local running = call('LRANGE', active, '0', '-1')
for from = 1, #running, 7000 do
  call('SADD', stalled, unpack(running, from, math.min(from + 6999, #running)))
end
return recovered
""",
        "moveToActive": """\
--- keys: wait active prioritized events stalled limiter delayed paused meta pc marker
--- args: base now options
--- include call
--- include start_attempt
--- lazy pop_next: fetch_next, pop_next
local options = cmsgpack.unpack(ARGV.options)
local open = false
if type(options) == 'table' and not options.limiter then
  local known = redis.pcall('HMGET', KEYS.meta, 'paused', 'concurrency', 'max')
  open = not known.err and
    not (known[1] or known[2] or known[3])
end
if open then
  local due = redis.pcall('ZRANGEBYSCORE', KEYS.delayed, '0', (ARGV.now + 1) * 4096 - 1, 'LIMIT', '0', '1')
  if not (due.err or due[1]) then
    local id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
    if id and string.sub(id, 1, 2) == '0:' then
      call('LREM', KEYS.active, '1', id)
      id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
    end
    if id then
      local job, token = ARGV.base .. id, options.token
      if token ~= '0' then
        call('SET', job .. ':lock', token, 'PX', options.lockDuration)
      end
      call('XADD', KEYS.events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
      local fields = start_attempt(job, ARGV.now, options.name)
--- when batch
      if not marked then
        call('ZADD', KEYS.marker, '0', '0')
        marked = true
      end
--- else
      call('ZADD', KEYS.marker, '0', '0')
--- end
      return { fields, id, 0, 0 }
    end
  end
end
local fetch_next, pop_next = load_pop_next()
return fetch_next(ARGV.base, ARGV.now, options, nil, pop_next) or { 0, 0, 0, 0 }
""",
        "moveToDelayed": """\
--- keys: marker active prioritized delayed job events meta stalled
--- args: base now id token delay skip_attempt fields
--- when next_job_of_move_to_delayed
--- keys: wait limiter
--- unless waiting_layout v6
--- keys: paused
--- end
--- keys: pc
--- args: fetch options
--- lazy fetch_in_place: fetch_in_place
--- end
--- include call
--- include emit_capped
--- include event_cap
--- include delay_slot
--- include mark_delayed
--- include release_lock
--- include write_fields
local delayed, job, id, delay = KEYS.delayed, KEYS.job, ARGV.id, ARGV.delay
if call('EXISTS', job) == 0 then
  return -1
end
local refusal = release_lock(job, KEYS.stalled, ARGV.token, id)
if refusal then
  return refusal
end
write_fields(job, ARGV.fields)
if call('LREM', KEYS.active, '-1', id) == 0 then
  return -3
end
local score, due = delay_slot(delayed, tonumber(ARGV.now), tonumber(delay))
if ARGV.skip_attempt == '0' then
  call('HINCRBY', job, 'atm', '1')
else
end
call('HSET', job, 'delay', delay)
local cap = event_cap(KEYS.meta)
call('ZADD', delayed, score, id)
emit_capped(KEYS.events, cap, 'delayed', 'jobId', id, 'delay', due)
--- when next_job_of_move_to_delayed
if ARGV.fetch == '1' then
  local reply = load_fetch_in_place()(ARGV.base, ARGV.now, cmsgpack.unpack(ARGV.options))
  if reply and type(reply[1]) == 'table' then
    return reply
  end
end
--- end
mark_delayed(KEYS.marker, delayed)
return 0
""",
        "moveToFinished": """\
--- keys: wait active prioritized events stalled limiter delayed paused meta pc
--- keys: finished job metrics marker
--- args: id now field result outcome fetch base
--- args: options fields
--- include call
--- include failure_fields
--- include plain_ms
--- include start_attempt
--- lazy finish_job: finish_job
--- lazy retention: keep_by_age, keep_by_count
local job, id, now, events = KEYS.job, ARGV.id, ARGV.now, KEYS.events
local lock = job .. ':lock'
local readable, options = pcall(cmsgpack.unpack, ARGV.options)
readable = readable and type(options) == 'table'
local keep, token = readable and options.keepJobs, readable and options.token
local stored, attempts, attempts_text, cap, plain, may_delay
if type(keep) == 'table' and (keep.age == nil or type(keep.age) == 'number')
  and (keep.count == nil or type(keep.count) == 'number') and tonumber(options.attempts) and token ~= '0' and
  options.maxMetricsSize == '' and not options.limiter and is_plain_ms(options.lockDuration)
  and (keep.count ~= 0 or plain_count(now)) then
  stored = redis.pcall('HMGET',
    job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
  )
  if
    stored[1] and not (stored[2] or stored[3] or stored[4])
    and redis.pcall('GET', lock) == token then
    local known = redis.pcall('HMGET', KEYS.meta, 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
    cap = known[4]
    attempts, attempts_text = plain_count(stored[5])
    plain = attempts and cap and (cap == '10000' or plain_count(cap))
      and (ARGV.fields == '' or failure_fields(ARGV.fields)) and
      not (known[1] or known[2] or known[3])
  end
end
if plain then
  local children, unsuccessful, delayed = job .. ':dependencies', job .. ':unsuccessful', KEYS.delayed
  if call('EXISTS', delayed, children, unsuccessful) ~= 0 then
    local due = tonumber(now) and redis.pcall('ZRANGEBYSCORE', delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
    may_delay = true
    plain = due and not due.err and not due[1]
      and (ARGV.outcome ~= 'completed' or call('EXISTS', children, unsuccessful) == 0)
  end
end
if not plain then
  return load_finish_job()(ARGV.base, id, job, now, ARGV.field, ARGV.result, ARGV.outcome, KEYS.finished, KEYS.metrics,
    readable and token, readable and options, ARGV.fields, ARGV.fetch == '1')
end
local active, field, result, outcome = KEYS.active, ARGV.field, ARGV.result, ARGV.outcome
call('DEL', lock)
call('SREM', KEYS.stalled, id)
if ARGV.fields ~= '' then
  call('HMSET', job, unpack(cmsgpack.unpack(ARGV.fields)))
end
if call('LREM', active, '-1', id) == 0 then
  return -3
end
local has_failed, has_event = outcome == 'failed', false
if keep.count == 0 then
  call('XTRIM', events, 'MAXLEN', '~', cap)
  call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
else
  local finished = KEYS.finished
  local retains = keep.age ~= nil or (keep.count ~= nil and keep.count > 0)
  has_event = not retains and redis.pcall('ZADD', finished, 'NX', now, id) == 1
  local capped = has_event and (cap == '10000' and '10001' or cap + 1 .. '')
  if has_event and type(redis.pcall('XADD', events, 'MAXLEN', '~', capped,
    '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
  )) == 'table' then
    call('ZREM', finished, id)
    has_event = false
  end
  if not has_event then
    call('XTRIM', events, 'MAXLEN', '~', cap)
    if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
      call('HSET', job, 'atm', attempts_text)
      call('ZADD', finished, now, id)
    end
  end
  call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
  if (stored[6] and has_failed) then
    call('HDEL', job, 'defa')
  end
  if retains then
    local keep_by_age, keep_by_count = load_retention()
    if keep.age ~= nil then
--- when age_retention_limit
      keep_by_age(ARGV.base, finished, now, keep.age, keep.limit)
--- else
      keep_by_age(ARGV.base, finished, now, keep.age)
--- end
    end
    if keep.count ~= nil and keep.count > 0 then
      keep_by_count(ARGV.base, finished, keep.count)
    end
  end
end
if not has_event then
  call('XADD', events,
    '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
  )
end
if has_failed and attempts >= tonumber(options.attempts) then
  call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_text)
end
if ARGV.fetch == '1' then
  local next_id = call('RPOPLPUSH', KEYS.wait, active)
  local old = next_id and string.sub(next_id, 1, 2) == '0:' and next_id
  if old then
    call('LREM', active, '1', old)
    next_id = nil
  end
  if not next_id and (not old or old == '0:0') then
    next_id = call('ZPOPMIN', KEYS.prioritized)[1]
    if next_id then
      call('LPUSH', active, next_id)
    else
      call('DEL', KEYS.pc)
      assert(not old, 'no prioritized job after the marker 0:0')
    end
  end
  if next_id then
    local next_job = ARGV.base .. next_id
    call('SET', next_job .. ':lock', token, 'PX', (options.lockDuration .. ''))
    call('XADD', events, '*', 'event', 'active', 'jobId', next_id, 'prev', 'waiting')
    local fields = start_attempt(next_job, now, options.name)
--- when batch
    if not marked then
      call('ZADD', KEYS.marker, '0', '0')
      marked = true
    end
--- else
    call('ZADD', KEYS.marker, '0', '0')
--- end
    return { fields, next_id, 0, 0 }
  end
  local score = may_delay and call('ZRANGE', KEYS.delayed, '0', '0', 'WITHSCORES')[2]
  if score then
    return { 0, 0, 0, score / 4096 }
  end
end
if call('LLEN', KEYS.wait) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS.prioritized) == 0 then
  call('XADD', events, '*', 'event', 'drained')
end
return 0
""",
        "obliterate": """\
--- keys: meta base
--- args: budget force
--- include call
--- include erase_job
--- include remove_members
local base = KEYS.base
local budget = tonumber(ARGV.budget)
local function spend(count)
  budget = budget - count
  return budget <= 0
end
local function erase_all(ids)
  for _, id in ipairs(ids) do
    erase_job(base, id)
  end
end
local function empty_set(name)
  local set = base .. name
  local ids = call('ZRANGE', set, '0', budget - 1)
  erase_all(ids)
  remove_members(set, ids)
  return spend(#ids)
end
local function empty_list(list, ids)
  erase_all(ids)
  call('LTRIM', list, #ids, '-1')
  return spend(#ids)
end
if call('HEXISTS', KEYS.meta, 'paused') == 0 then
  return -1
end
local active = base .. 'active'
local running = call('LRANGE', active, '0', budget - 1)
if running[1] and ARGV.force == '' then
  return -2
end
for _, id in ipairs(running) do
  call('DEL', base .. id .. ':lock')
end
if empty_list(active, running) then
  return 1
end
if empty_set('delayed') then
  return 1
end
local schedulers = call('ZRANGE', base .. 'repeat', '0', budget - 1)
for _, scheduler in ipairs(schedulers) do
  call('DEL', base .. 'repeat:' .. scheduler)
end
remove_members(base .. 'repeat', schedulers)
if spend(#schedulers) then
  return 1
end
if empty_set('completed') then
  return 1
end
--- when waiting_layout v6
local wait = base .. 'wait'
if empty_list(wait, call('LRANGE', wait, '0', budget - 1)) then
  return 1
end
--- elsewhen merging_pause
local wait = base .. 'wait'
if empty_list(wait, call('LRANGE', wait, '0', budget - 1)) then
  return 1
end
--- end
local paused = base .. 'paused'
if empty_list(paused, call('LRANGE', paused, '0', budget - 1)) then
  return 1
end
if empty_set('prioritized') then
  return 1
end
if empty_set('failed') then
  return 1
end
call('DEL', base .. 'events', base .. 'delay', base .. 'stalled-check', base .. 'stalled', base .. 'id', base .. 'pc',
--- when obliterate_marker
  base .. 'marker',
--- end
  base .. 'meta', base .. 'metrics:completed', base .. 'metrics:completed:data', base .. 'metrics:failed',
  base .. 'metrics:failed:data')
return 0
""",
        "pause": """\
--- keys: source target meta prioritized events delayed marker
--- when merging_pause
--- args: change emits
--- elsewhen waiting_layout v6
--- args: change emits
--- else
--- args: change
--- end
--- include call
--- include emit
--- include mark_delayed
--- when merging_pause or waiting_layout v6
local MOST = 7000
local source, target, meta, marker, change = KEYS.source, KEYS.target, KEYS.meta, KEYS.marker, ARGV.change
local is_filled = call('EXISTS', source) == 1
--- when merging_pause
if change == 'healed' and (not is_filled or call('HEXISTS', meta, 'paused') == 1) then
  return 0
end
--- end
local left = 0
if change == 'paused' then
  call('HSET', meta, 'paused', '1')
  call('DEL', marker)
--- when merging_pause
  if is_filled and call('EXISTS', target) == 0 then
    call('RENAME', source, target)
  else
    for _ = 1, MOST do
      if not call('RPOPLPUSH', source, target) then
        break
      end
    end
  end
  left = call('LLEN', source)
--- end
else
--- when merging_pause
  if change ~= 'healed' then
    call('HDEL', meta, 'paused')
  end
--- else
  call('HDEL', meta, 'paused')
--- end
  if not is_filled then
  elseif call('EXISTS', target) == 0 then
    call('RENAME', source, target)
  else
    call('RPUSH', target, unpack(call('LRANGE', source, '0', MOST - 1)))
    call('LTRIM', source, MOST, '-1')
    left = call('LLEN', source)
  end
  if call('LLEN', target) + call('ZCARD', KEYS.prioritized) > 0 then
    call('ZADD', marker, '0', '0')
  else
    mark_delayed(marker, KEYS.delayed)
  end
end
--- when merging_pause
if ARGV.emits ~= '0' and change ~= 'healed' then
--- else
if ARGV.emits ~= '0' then
--- end
  emit(KEYS.events, change)
end
return left
--- else
local meta, marker, change = KEYS.meta, KEYS.marker, ARGV.change
local moved = call('EXISTS', KEYS.source) == 1
if moved then
  call('RENAME', KEYS.source, KEYS.target)
else
end
if change == 'paused' then
  call('HSET', meta, 'paused', '1')
  call('DEL', marker)
else
  call('HDEL', meta, 'paused')
  if moved or call('ZCARD', KEYS.prioritized) > 0 then
    call('ZADD', marker, '0', '0')
  else
    mark_delayed(marker, KEYS.delayed)
  end
end
emit(KEYS.events, change)
--- end
""",
        "promote": """\
--- keys: delayed wait paused meta prioritized active pc events marker
--- args: base id
--- include call
--- include emit
--- include queue_gate
--- include mark_ready
--- include zadd_by_priority
--- include priority_of
local id = ARGV.id
local job = ARGV.base .. id
if call('ZREM', KEYS.delayed, id) == 0 then
  return -3
end
local priority = priority_of(job)
local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
local head = call('LINDEX', target, '0')
if head and string.sub(head, 1, 2) == '0:' then
  call('LPOP', target)
end
if priority == 0 then
  call('LPUSH', target, id)
else
  zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
end
mark_ready(KEYS.marker, held)
emit(KEYS.events, 'waiting', 'jobId', id, 'prev', 'delayed')
call('HSET', job, 'delay', '0')
return 0
""",
        "removeChildDependency": """\
--- keys: base
--- args: child parent
--- include call
--- include unlink_child
local child, parent = ARGV.child, ARGV.parent
if call('EXISTS', child) == 0 then
  return -1
end
if call('EXISTS', parent) == 0 then
  return -5
end
if not unlink_given(parent, child) then
  return 1
end
call('HDEL', child, 'parentKey', 'parent')
return 0
""",
        "removeJob": """\
--- keys: job repeats
--- args: id with_children base
--- include call
--- include split_job_key
--- include remove_tree
--- include scheduler_current
local with_children = ARGV.with_children == '1'
local function has_lock(base, id)
  local job = base .. id
  if call('GET', job .. ':lock') then
    return true
  end
  if not with_children then
    return false
  end
  local path, depth, seen = {}, 0, {}
  local function open(key)
    seen[key], depth = 'open', depth + 1
    path[depth] = { job = key, members = call('SMEMBERS', key .. ':dependencies'), at = 0 }
  end
  open(job)
  while depth > 0 do
    local top = path[depth]
    local at = top.at + 1
    local child = top.members[at]
    if child then
      top.at = at
      local child_base, child_id = split_job_key(child)
      local key = child_base .. child_id
      if seen[key] == 'open' then
        error('a job is its own descendant', 0)
      elseif not seen[key] then
        if call('GET', key .. ':lock') then
          return true
        end
        open(key)
      end
    else
      seen[top.job], path[depth], depth = 'left', nil, depth - 1
    end
  end
  return false
end
if is_current_iteration(KEYS.job, ARGV.id, KEYS.repeats) then
  return -8
end
if has_lock(ARGV.base, ARGV.id) then
  return 0
end
remove_tree(ARGV.base, ARGV.id, with_children)
return 1
""",
        "removeUnprocessedChildren": """\
--- keys: job meta
--- args: base id
--- include remove_tree
remove_children(KEYS.job, 'unprocessed')
""",
        "reprocessJob": """\
--- keys: job events source wait meta
--- unless waiting_layout v6
--- keys: paused
--- end
--- keys: active marker
--- args: id push field state
--- when single_retry 6.3
--- keys: prioritized pc
--- include priority_of
--- include zadd_by_priority
--- end
--- when single_retry 5.81 6.3
--- args: reset_made reset_started
--- include pending_again
--- end
--- include call
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready
local job, meta, id, state = KEYS.job, KEYS.meta, ARGV.id, ARGV.state
--- when single_retry 5.62
local function forget_outcome(parent)
  if state == 'completed' then
    return call('HDEL', parent .. ':processed', job)
  end
  local failures = call('ZREM', parent .. ':unsuccessful', job)
  if failures > 0 then
    return failures
  end
  return call('ZREM', parent .. ':failed', job)
end
--- end
if call('EXISTS', job) == 0 then
  return -1
end
if call('ZREM', KEYS.source, id) == 0 then
  return -3
end
--- when single_retry 5.81 6.3
local fields = { 'finishedOn', 'processedOn', ARGV.field }
if ARGV.reset_made == '1' then
  fields[#fields + 1] = 'atm'
end
if ARGV.reset_started == '1' then
  fields[#fields + 1] = 'ats'
end
call('HDEL', job, unpack(fields))
--- else
call('HDEL', job, 'finishedOn', 'processedOn', ARGV.field)
--- end
--- when waiting_layout v6
local target, held = queue_gate(meta, KEYS.active, KEYS.wait)
--- else
local target, held = queue_gate(meta, KEYS.active, KEYS.wait, KEYS.paused)
--- end
--- when single_retry 6.3
local priority = priority_of(job)
if priority ~= 0 then
  zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
else
  call(ARGV.push, target, id)
end
--- else
call(ARGV.push, target, id)
--- end
mark_ready(KEYS.marker, held)
--- when single_retry 5.81 6.3
pending_again(job, state)
--- else
local parent = call('HGET', job, 'parentKey')
if parent and call('EXISTS', parent) == 1 then
  if forget_outcome(parent) > 0 then
    call('SADD', parent .. ':dependencies', job)
  else
  end
else
end
--- end
emit_capped(KEYS.events, event_cap(meta), 'waiting', 'jobId', id, 'prev', state)
return 1
""",
        "retryJob": """\
--- keys: active wait paused job meta events delayed prioritized pc marker stalled
--- args: base now push id token fields
--- include call
--- include emit_capped
--- include default_cap
--- include is_held
--- include queue_settings
--- include mark_ready
--- include zadd_by_priority
--- include priority_of
--- lazy promote_due: promote_due
--- include release_lock
--- include write_fields
local active, job, meta, events, marker, id = KEYS.active, KEYS.job, KEYS.meta, KEYS.events, KEYS.marker, ARGV.id
local known = queue_settings(meta)
--- when waiting_layout adaptive
local target = KEYS.wait
if known[1] and (call('EXISTS', KEYS.paused) == 1 or call('EXISTS', KEYS.wait) == 0) then
  target = KEYS.paused
end
--- elsewhen waiting_layout v6
local target = KEYS.wait
--- else
local target = known[1] and KEYS.paused or KEYS.wait
--- end
local held = is_held(known[1], known[2], active)
local now = tonumber(ARGV.now)
if call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
  load_promote_due()(ARGV.base, now, target, held)
end
if call('EXISTS', job) == 0 then
  return -1
end
local refusal = release_lock(job, KEYS.stalled, ARGV.token, id)
if refusal then
  return refusal
end
write_fields(job, ARGV.fields)
if call('LREM', active, '-1', id) == 0 then
  return -3
end
local priority = priority_of(job)
held = is_held(known[1], known[2], active)
if priority == 0 then
  call(ARGV.push, target, id)
else
  zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
end
mark_ready(marker, held)
call('HINCRBY', job, 'atm', '1')
emit_capped(events, known[5] or store_default_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
return 0
""",
        "updateJobScheduler": """\
--- keys: repeats delayed wait paused meta prioritized marker id events pc producer active
--- args: slot scheduler data options now base
--- args: producer_id
--- include call
--- include emit_capped
--- include event_cap
--- include scheduler_slot
--- include scheduler_iteration
--- when write_nrjid
local schedulers, producer, scheduler, timestamp = KEYS.repeats, KEYS.producer, ARGV.scheduler, ARGV.now
--- else
local schedulers, scheduler, timestamp = KEYS.repeats, ARGV.scheduler, ARGV.now
--- end
local options = cmsgpack.unpack(ARGV.options)
local previous = tonumber(call('ZSCORE', schedulers, scheduler))
if not previous then
  return nil
end
local record, now = schedulers .. ':' .. scheduler, tonumber(timestamp)
local template = call('HMGET', record, 'name', 'data', 'every', 'offset')
local schedule = options['repeat'] or {}
local fallback_every, fallback_offset = schedule.every, schedule.offset
local every = tonumber(template[3]) or tonumber(fallback_every)
local slot
if every then
  slot = next_slot(previous, every, now, template[4] or fallback_offset or 0, nil)
else
  slot = tonumber(ARGV.slot)
end
local id_stem = 'repeat:' .. scheduler .. ':'
local id = id_stem .. slot
if ARGV.producer_id ~= id_stem .. previous then
  return nil
end
local cap = event_cap(KEYS.meta)
local job = record .. ':' .. slot
if call('EXISTS', job) == 1 then
  emit_capped(KEYS.events, cap, 'duplicated', 'jobId', id)
  return nil
end
call('ZADD', schedulers, slot, scheduler)
call('HINCRBY', record, 'ic', '1')
call('INCR', KEYS.id)
--- when scheduler_data_fallback
local data = template[2] or ARGV.data
if data ~= '{}' then
  call('HSET', record, 'data', data)
else
end
--- else
local data = template[2] or '{}'
--- end
local delay = math.max(slot - now, 0)
create_iteration(job, id, template[1], data, options, timestamp, delay, scheduler, cap)
--- when write_nrjid
if producer ~= '' then
  call('HSET', producer, 'nrjid', id)
else
end
--- end
return id
""",
        "addMany": """\
--- keys: wait paused meta id completed delayed active events marker prioritized pc waiting_children
--- args: rows
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
local count = #ARGV / 4
local replies, above, add_rest = {}, 0, nil
local at = 4
while ARGV[at - 3] == '3' do
  above = above + 1
  at = at + 4
end
if above > 0 then
  add_rest = load_add_rest()
  add_rest(1, above, replies)
end
local function read_options(packed)
  local options = cmsgpack.unpack(packed)
  local delay, priority = options.delay or '0', options.priority or '0'
  return not options.de and { cjson.encode(options), delay .. '' and delay, priority .. '' and priority, options.lifo }
end
local heads, kinds, links, taken, plain, readable = {}, {}, {}, {}, 0, false
local sort, parent, pending = ARGV[at - 3], nil, nil
local unpack_packed = cmsgpack.unpack
for number = 1, count - above do
  at = 4 * (above + number)
  local packed = ARGV[at]
  local kind, head = kinds[packed], nil
  if kind == nil then
    readable, kind = pcall(read_options, packed)
    kind = readable and kind
    if kind then
      kind[5] = sort == '0' or tonumber(sort == '1' and kind[2] or kind[3])
      kind = kind[5] and kind
    end
    kinds[packed] = kind
  end
  readable, head = pcall(unpack_packed, ARGV[at - 2])
  if not (kind and readable and ARGV[at - 3] == sort and type(head) == 'table' and type(head[3]) == 'string'
    and is_plain_ms(head[4]) and type(head[1]) == 'string' and type(head[2]) == 'string' and not head[8]
  ) then
    break
  end
  if number == 1 and head[5] ~= nil then
    parent, pending = head[5], head[6]
  end
  if head[5] ~= parent or head[6] ~= pending then
    break
  end
  if parent ~= nil then
    readable, links[number] = pcall(cjson.encode, head[7])
    if not readable then
      break
    end
  end
  local id = head[2]
  if id ~= '' then
    id = head[1] .. id
    if taken[id] or #taken < plain then
      break
    end
    taken[number], taken[id] = id, true
  elseif taken[1] then
    break
  end
  heads[number], plain = head, number
end
if sort ~= '0' and sort ~= '1' and sort ~= '2' then
  plain = 0
end
if parent ~= nil and plain > 0 then
  local found = type(parent) == 'string' and pending == parent .. ':dependencies' and not taken[pending]
    and call('EXISTS', parent) == 1 and call('TYPE', pending).ok
  if found ~= 'set' and found ~= 'none' then
    plain = 0
  end
end
if taken[1] then
  for number = 1, #KEYS do
    local name = KEYS[number]
    if taken[name] then
      plain = 0
    end
  end
  if call('EXISTS', unpack(taken)) > 0 then
    plain = 0
  end
end
local settings = redis.pcall('HMGET', KEYS.meta, 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings[1]
if not (cap and plain_count(cap)) or (settings[3] and not tonumber(settings[3])) then
  plain = 0
end
if sort == '2' and plain > 0 then
  local turn = redis.pcall('GET', KEYS.pc)
  if turn and not (type(turn) == 'string' and plain_count(turn)) then
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
    at = 4 * (above + number)
    local head, packed = heads[number], ARGV[at]
    local name, kind, id = head[3], kinds[packed], own and head[2] or first + number
    local job = head[1] .. id
    if not own then
--- when text_ids
      id = id .. ''
--- else
      if math.abs(id) < 100000000000000 then
        id = id .. ''
      end
--- end
    end
    if head[4] ~= last_stamp then
      last_stamp = head[4]
      stamp = last_stamp .. ''
    end
    local stored
    if parent then
      stored = redis.pcall('HMSET', job,
        'name', name, 'data', ARGV[at - 1], 'opts', kind[1], 'timestamp', stamp, 'delay', kind[2], 'priority', kind[3]
        , 'parentKey', parent, 'parent', links[number]
      )
    else
      stored = redis.pcall('HMSET', job,
        'name', name, 'data', ARGV[at - 1], 'opts', kind[1], 'timestamp', stamp, 'delay', kind[2], 'priority', kind[3]
      )
    end
    if stored.err then
      replies[above + number] = alone_or_error(error, stored)
    else
      call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
      if sort == '1' then
        if head[4] == placed_at and delay == kind[5] then
          if score < (due + 1) * 4096 - 1 then
            score = score + 1
          end
        else
          placed_at, delay = head[4], kind[5]
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
      call('SADD', pending, unpack(children))
--- when deferred_parent_release
      at = 4 * count
      if above + plain + 1 == count and ARGV[at - 3] == '4' and ARGV[at - 1] == replies[above]
        and parent == ARGV[at - 2] .. ':' .. ARGV[at - 1] then
        replies[count] = false
        count = above + plain
      end
--- end
    end
    if slot then
      load_mark_delayed()(KEYS.marker, KEYS.delayed)
    else
--- when waiting_layout v5
      local target = settings[2] and KEYS.paused or KEYS.wait
--- else
--- when waiting_layout adaptive
      local target = KEYS.wait
      if settings[2] and (call('EXISTS', KEYS.paused) == 1 or call('EXISTS', KEYS.wait) == 0) then
        target = KEYS.paused
      end
--- elsewhen waiting_layout v6
      local target = KEYS.wait
--- else
      local target = settings[2] and KEYS.paused or KEYS.wait
--- end
--- end
      if fifo[1] then
        call('LPUSH', target, unpack(fifo))
      end
      if lifo[1] then
        call('RPUSH', target, unpack(lifo))
      end
      if urgent[1] then
        local turn = call('INCRBY', KEYS.pc, stored_count) - stored_count
        for number = 1, stored_count do
          urgent[2 * number - 1] = urgent[2 * number - 1] + (turn + number) % PRIORITY_STEP
        end
        call('ZADD', KEYS.prioritized, unpack(urgent))
      end
      if not settings[2]
        and not (settings[3] and call('LLEN', KEYS.active) >= tonumber(settings[3])) then
        call('ZADD', KEYS.marker, '0', '0')
      end
    end
    for _ = 1, stored_count do
      if call('XTRIM', events, 'MAXLEN', '~', cap) == 0 then
        break
      end
    end
  end
end
plain = above + plain
if plain < count then
  add_rest = add_rest or load_add_rest()
  add_rest(plain + 1, count, replies)
end
return replies
""",
        "fetchMany": """\
--- keys: wait active prioritized events stalled limiter delayed paused meta pc marker
--- args: base now options tokens
--- include call
--- flags: batch
--- include plain_ms
--- include first_attempt
--- lazy pop_next: fetch_next, pop_next
local MOST_BYTES = 1000000
local base, now, options, tokens = ARGV.base, ARGV.now, cmsgpack.unpack(ARGV.options), cmsgpack.unpack(ARGV.tokens)
local count = #tokens
local replies, done, over = {}, 0, false
local known = redis.pcall('HMGET', KEYS.meta, 'paused', 'concurrency', 'max')
local due = redis.pcall('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
local coming = redis.pcall('LRANGE', KEYS.wait, -count, '-1')
if coming[1] and not (known.err or due[1] or due.err or options.limiter) and
  not (known[1] or known[2] or known[3])
  and is_plain_ms(options.lockDuration) and call('LLEN', KEYS.active) then
  local lock_ms, worker, taken = options.lockDuration .. '', options.name, {}
  local left, events, sub = #coming, KEYS.events, string.sub
  for number = 1, math.min(count, left) do
    local id, token = coming[left + 1 - number], tokens[number]
    if sub(id, 1, 2) == '0:' or token == '0' then
      break
    end
    local job = base .. id
    local found = redis.pcall('HGETALL', job)
    local answer = not found.err and first_attempt(job, id, now, worker, found)
    if not answer then
      over = done > 0
      break
    end
    call('SET', job .. ':lock', token, 'PX', lock_ms)
    call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
    taken[number] = id
    replies[number] = answer
    done = number
    if fetched_bytes > MOST_BYTES then
      over = true
      break
    end
  end
  if done > 0 then
    call('ZADD', KEYS.marker, '0', '0')
    call('LPUSH', KEYS.active, unpack(taken))
    call('LTRIM', KEYS.wait, '0', -1 - done)
  end
end
if done < count and not over then
  local fetch_next, pop_next = load_pop_next()
  for number = done + 1, count do
    local passed, reply = pcall(fetch_next, base, now, options, tokens[number], pop_next)
    if not passed then
      return number > 1 and replies or error(reply, 0)
    end
    replies[number] = reply or { 0, 0, 0, 0 }
    if replies[number][2] == 0 or fetched_bytes > MOST_BYTES then
      break
    end
  end
end
return replies
""",
        "finishMany": """\
--- keys: wait active prioritized events stalled limiter delayed paused meta pc
--- keys: completed failed completed_metrics failed_metrics marker
--- args: base options heads
--- args: outcomes
--- flags: batch, deferred
--- include ended_jobs
--- include each_alone
--- include failure_fields
--- include plain_ms
--- include first_attempt
--- lazy finish_rest: finish_rest
local MOST_BYTES = 1000000
local base, all_options, heads = ARGV.base, cmsgpack.unpack(ARGV.options), cmsgpack.unpack(ARGV.heads)
local count = #heads / 7
local replies, done = {}, 0
local kinds = {}
for number = 1, #all_options do
  local options = all_options[number]
  local keep, lock_ms = options.keepJobs, options.lockDuration
  local attempts = tonumber(options.attempts)
  if type(keep) == 'table' and keep.age == nil and (keep.count == nil or keep.count == -1 or keep.count == 0)
    and attempts and
    options.maxMetricsSize == '' and not options.limiter and is_plain_ms(options.lockDuration)
  then
    kinds[number] = { keep.count == 0, lock_ms .. '', attempts, options.name }
  end
end
if not next(kinds) then
  load_finish_rest()(base, all_options, heads, 1, count, MOST_BYTES, replies)
  return replies
end
local jobs, ending, locks, children, fetches, latest = {}, {}, {}, {}, 0, 0
for number = 1, count do
  local at = 7 * number
  local id, now = heads[at - 6], tonumber(heads[at - 4])
  local job = base .. id
  jobs[number], ending[id], locks[number] = job, true, job .. ':lock'
  fetches = fetches + heads[at - 2]
  if now > latest then
    latest = now
  end
  if heads[at - 3] == 0 then
    children[#children + 1] = job .. ':dependencies'
    children[#children + 1] = job .. ':unsuccessful'
  end
end
local known = redis.pcall('HMGET', KEYS.meta, 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
local coming = redis.pcall('LRANGE', KEYS.wait, -1 - fetches, '-1')
local window = redis.pcall('LRANGE', KEYS.active, -2 * count, '-1')
local due = redis.pcall('ZRANGEBYSCORE', KEYS.delayed, '0', (latest + 1) * 4096 - 1, 'LIMIT', '0', '1')
local left, size, cap = #coming, #window, known[4]
if plain_count(cap) and cap and not (due[1] or due.err or window.err) and
  not (known[1] or known[2] or known[3])
  and (left > 0 or size > count) and not (children[1] and call('EXISTS', unpack(children)) > 0) then
  local places = {}
  for place = 1, size do
    local id = window[place]
    places[id] = place
  end
  local owners = call('MGET', unpack(locks))
  local events, sub = KEYS.events, string.sub
  local gone, stalled, finished, failed, taken = {}, {}, {}, {}, {}
  local first, last_events, started = size + 1, 0, false
  for number = 1, count do
    local at = 7 * number
    local id, now, has_failed, place = heads[at - 6], heads[at - 4], heads[at - 3] == 1, heads[at - 1]
    local outcome_at = 2 * heads[at] + 3
    local job, token, fetch, kind = jobs[number], heads[at - 5], heads[at - 2] == 1, kinds[place]
    local next_id = fetch and coming[left]
    local stored = redis.pcall('HMGET',
      job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
    )
    local attempts, text, fields = nil, nil, nil
    if kind and ending[id] and owners[number] == token and token ~= '0' and
      stored[1] and not (stored[2] or stored[3] or stored[4])
    then
      attempts, text = plain_count(stored[5])
    end
    if fetch then
      if not next_id then
        attempts = nil
      elseif ending[next_id] ~= nil then
        attempts = nil
      elseif sub(next_id, 1, 2) == '0:' then
        attempts = nil
      end
    end
    local packed = ARGV[outcome_at]
    if packed ~= '' and attempts then
      fields = failure_fields(packed)
      attempts = fields and attempts
    end
    if not attempts then
      break
    end
    place = places[id]
    if place then
      window[place] = false
      if place < first then
        first = place
      end
    elseif call('LREM', KEYS.active, '-1', id) == 0 then
      break
    else
    end
    ending[id] = false
    gone[#gone + 1] = locks[number]
    stalled[number] = id
    local outcome, field, result, members = 'completed', 'returnvalue', ARGV[outcome_at - 1], finished
    if has_failed then
      outcome, field, members = 'failed', 'failedReason', failed
    end
    if kind[1] then
      local at_gone = #gone
      gone[at_gone + 1], gone[at_gone + 2], gone[at_gone + 3] = job, job .. ':logs', job .. ':dependencies'
      gone[at_gone + 4], gone[at_gone + 5] = job .. ':processed', job .. ':failed'
      gone[at_gone + 6] = job .. ':unsuccessful'
    else
      if fields then
        call('HMSET', job, unpack(fields))
      end
      call('HSET', job, 'atm', text, field, result, 'finishedOn', now)
      if (has_failed and stored[6]) then
        call('HDEL', job, 'defa')
      end
      local at_member = #members
      members[at_member + 1], members[at_member + 2] = now, id
    end
    last_events = 0
    call('XADD', events,
      '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
    )
    last_events = last_events + 1
    if has_failed and attempts >= kind[3] then
      call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', text)
      last_events = last_events + 1
    end
    done = number
    if fetch then
      left = left - 1
      taken[#taken + 1] = next_id
      local next_job = base .. next_id
      call('SET', next_job .. ':lock', token, 'PX', kind[2])
      call('XADD', events, '*', 'event', 'active', 'jobId', next_id, 'prev', 'waiting')
      last_events = last_events + 1
      local answer = alone_or_error(first_attempt, next_job, next_id, now, kind[4])
      if answer[2] then
        started = true
      else
      end
      replies[number] = answer
      if fetched_bytes > MOST_BYTES then
        break
      end
    else
      replies[number] = 0
    end
  end
  if done > 0 then
    call('DEL', unpack(gone))
    call('SREM', KEYS.stalled, unpack(stalled))
    if finished[1] then
      call('ZADD', KEYS.completed, unpack(finished))
    end
    if failed[1] then
      call('ZADD', KEYS.failed, unpack(failed))
    end
    cap = (cap + last_events) .. ''
    for _ = 1, done do
      if call('XTRIM', events, 'MAXLEN', '~', cap) == 0 then
        break
      end
    end
    if started then
      call('ZADD', KEYS.marker, '0', '0')
    end
    if taken[1] then
      call('LPUSH', KEYS.active, unpack(taken))
    end
    if first <= size then
      local staying = {}
      for place = first, size do
        if window[place] then
          staying[#staying + 1] = window[place]
        end
      end
      call('LTRIM', KEYS.active, '0', first - size - 2)
      if staying[1] then
        call('RPUSH', KEYS.active, unpack(staying))
      end
    end
    if taken[1] then
      call('LTRIM', KEYS.wait, '0', -1 - #taken)
    end
  end
end
if done < count and fetched_bytes <= MOST_BYTES then
  load_finish_rest()(base, all_options, heads, done + 1, count, MOST_BYTES, replies)
end
return replies
""",
        "releaseParentIfNoPendingDependencies": """\
--- keys: parent pending
--- args: queue id now
--- include call
--- include parent_release
if call('HEXISTS', KEYS.parent, 'flowAttachmentFailed') == 1 then
  call('HDEL', KEYS.parent, 'flowAttachmentFailed')
elseif call('SCARD', KEYS.pending) == 0 then
  release_parent(ARGV.queue, KEYS.parent, ARGV.id, ARGV.now)
else
end
return nil
""",
    }
)

INCLUDES: Mapping[str, str] = MappingProxyType(
    {
        "add_delayed": """\
--- include call
--- include add_job
--- when batch
--- include adding_settings
--- end
--- include default_cap
--- include delay_slot
--- include emit_capped
--- include mark_delayed
local function add_delayed(packed_options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number()
--- when batch
  local settings = batch and batch.settings
  local cap = settings and settings[1]
  if not cap then
    cap = call('HGET', KEYS.meta, 'opts.maxLenEvents') or store_default_cap(KEYS.meta)
  end
  local options = batch and batch.options[packed_options] or cmsgpack.unpack(packed_options)
--- else
  local cap = call('HGET', KEYS.meta, 'opts.maxLenEvents') or store_default_cap(KEYS.meta)
  local options = cmsgpack.unpack(packed_options)
--- end
  local id, job, reply = admit(sequence, options, cap)
  if reply then
    return reply
  end
  local score, due = delay_slot(KEYS.delayed, born_at, tonumber(options.delay or 0))
  call('ZADD', KEYS.delayed, score, id)
  emit_capped(KEYS.events, cap, 'delayed', 'jobId', id, 'delay', due)
--- when batch
  if batch then
    batch.has_delayed = true
  else
    mark_delayed(KEYS.marker, KEYS.delayed)
  end
--- else
  mark_delayed(KEYS.marker, KEYS.delayed)
--- end
  return finish_add(id, job)
end
""",
        "add_job": """\
--- include job_head
--- include call
--- when batch
--- include count_together
--- end
--- include emit_capped
--- include store_job
--- unless keep_last_if_active or reschedule
--- lazy deduplicate: deduplicate
--- end
--- when batch
local batch = nil
--- end
local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data
--- when deferred_parent_release
local deferring
--- end
--- when keep_last_if_active or reschedule
--- lazy deduplicate: deduplicate
--- end
--- when stale_key_repair
--- lazy take_key: take_key
--- end
local function open_job(head, job_data)
  base, custom_id, name, born_at = head[1], head[2], head[3], head[4]
  parent, pending, link = head[5], head[6], head[7]
  scheduler, dedup_key, data = head[8], head[9], job_data
--- when deferred_parent_release
  deferring = head[10]
--- end
end
local function next_number()
--- when batch
  if batch then
    if batch.reserved == 0 then
      local last = batch.run > 1 and count_together(KEYS.id, batch.run)
      if not last then
        return call('INCR', KEYS.id)
      end
      batch.reserved, batch.last = batch.run, last
    end
    batch.reserved = batch.reserved - 1
    return batch.last - batch.reserved
  end
--- end
  return call('INCR', KEYS.id)
end
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    return true
  end
  return false
end
--- lazy duplicate_job: answer_duplicate
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    id = sequence
    job = base .. id
--- when text_ids
    id = id .. ''
--- else
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
--- end
  else
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, cap)
    end
  end
--- when batch
  if batch and options.de then
    batch.flush()
  end
--- end
--- when stale_key_repair
  local rule, owner = options.de, nil
  if rule then
    if rule.replace or rule.keepLastIfActive or rule.reschedule then
      owner = load_deduplicate()(rule, dedup_key, id, base, KEYS.delayed, KEYS.events, cap, options)
    else
      owner = load_take_key()(rule, dedup_key, id, base, KEYS.events, cap)
    end
  end
--- elsewhen keep_last_if_active or reschedule
  local owner = options.de
    and load_deduplicate()(options.de, dedup_key, id, base, KEYS.delayed, KEYS.events, cap, options)
--- else
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, KEYS.delayed, KEYS.events, cap)
--- end
  if owner then
    return id, job, owner
  end
--- when batch
  store_job(KEYS.events, job, id, name, data, born_at, options, parent, link, scheduler, batch and batch.encoded)
--- else
  store_job(KEYS.events, job, id, name, data, born_at, options, parent, link, scheduler)
--- end
  return id, job, nil
end
local function finish_add(id, job)
  if pending ~= nil then
    call('SADD', pending, job)
  end
  return id .. '', true
end
""",
        "add_prioritized": """\
--- include call
--- include add_job
--- include add_settings
--- include emit_capped
--- include mark_ready
--- include zadd_by_priority
local function add_prioritized(options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number()
  local settings = add_settings()
  local cap = settings[1]
  local id, job, reply = admit(sequence, options, cap)
  if reply then
    return reply
  end
  local held = add_held(settings)
  zadd_by_priority(KEYS.prioritized, KEYS.pc, options.priority or 0, id)
--- when batch
  if batch then
    batch.ready = batch.ready or not held
  else
    mark_ready(KEYS.marker, held)
  end
--- else
  mark_ready(KEYS.marker, held)
--- end
  emit_capped(KEYS.events, cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
""",
        "add_rest": """\
--- include job_head
--- include added_jobs
--- include call
--- include each_alone
--- include add_job
--- include add_delayed
--- include add_prioritized
--- include add_settings
--- include add_standard
--- include emit_capped
--- include mark_delayed
--- when deferred_parent_release
--- lazy release_unless_pending: release_unless_pending
--- end
local function add_rest(from, count, replies)
  local known_options, names = {}, {}
  batch = {
    settings = nil, held = nil, waiting = {}, target = nil, ready = false, has_delayed = false, encoded = {},
    options = known_options, reserved = 0, last = 0, run = 1,
  }
  for number = 1, #KEYS do
    local name = KEYS[number]
    names[name] = true
  end
  local heads, runs, postponed = {}, { [count + 1] = 0 }, true
  for number = count, from, -1 do
    local at = 4 * number
    local readable, head = pcall(cmsgpack.unpack, ARGV[at - 2])
    heads[number] = readable and head
    local text = ARGV[at]
    if known_options[text] == nil then
      local known, options = pcall(cmsgpack.unpack, text)
      if known and type(options) == 'table' then
        known_options[text] = options
      end
    end
    local is_head = readable and type(head) == 'table'
    local sure = is_head and head[5] == nil and known_options[text]
    runs[number] = sure and runs[number + 1] + 1 or 0
    local job = is_head and type(head[1]) == 'string' and type(head[2]) == 'string' and head[1] .. head[2]
    if names[job] then
      postponed = false
    end
  end
  local state = batch
  if not postponed then
    batch = nil
  end
  function state.flush()
    local waiting = state.waiting
    if waiting[1] then
      call('LPUSH', state.target, unpack(waiting))
      state.waiting = {}
    end
    if state.has_delayed then
      mark_delayed(KEYS.marker, KEYS.delayed)
      state.has_delayed = false
    end
  end
  local function stored_cap()
    local settings = add_settings()
    return settings[1]
  end
  local function add(kind, options)
    if kind == '0' then
      options = known_options[options] or cmsgpack.unpack(options)
      return add_standard(options)
    end
    if kind == '1' then
      return add_delayed(options)
    end
    options = known_options[options] or cmsgpack.unpack(options)
    if kind ~= '3' then
      return add_prioritized(options)
    end
    if lacks_parent() then
      return -5
    end
    local sequence = next_number()
    local cap = stored_cap()
    local id, job, reply = admit(sequence, options, cap)
    if reply then
      return reply
    end
    call('ZADD', KEYS.waiting_children, born_at, id)
    emit_capped(KEYS.events, cap, 'waiting-children', 'jobId', id)
    return finish_add(id, job)
  end
  local function add_or_find(number)
    local at = 4 * number
--- when deferred_parent_release
    if ARGV[at - 3] == '4' then
      local queue, id = ARGV[at - 2], ARGV[at - 1]
      local job = queue .. ':' .. id
      local children = job .. ':dependencies'
      if call('SCARD', children) == 0 or call('HEXISTS', job, 'flowAttachmentFailed') == 1 then
        load_release_unless_pending()(queue, job, children, id, ARGV[at])
      end
      return false
    end
--- end
    open_job(heads[number] or cmsgpack.unpack(ARGV[at - 2]), ARGV[at - 1])
    if batch then
      batch.run = math.max(1, runs[number])
    end
    local reply, added = add(ARGV[at - 3], ARGV[at])
    if added or type(reply) ~= 'string' then
      return reply
    end
    return { reply, 0 }
  end
  for number = from, count do
    replies[number] = alone_or_error(add_or_find, number)
  end
  state.flush()
  if state.ready then
    call('ZADD', KEYS.marker, '0', '0')
  end
end
""",
        "add_settings": """\
--- include adding_settings
--- include call
--- include add_job
--- include default_cap
--- include is_held
local function add_settings()
--- when batch
  if batch and batch.settings then
    return batch.settings
  end
--- end
  local settings = call('HMGET', KEYS.meta, 'opts.maxLenEvents', 'paused', 'concurrency')
  settings[1] = settings[1] or store_default_cap(KEYS.meta)
--- when batch
  if batch then
    batch.settings = settings
  end
--- end
  return settings
end
local function add_held(settings)
--- when batch
  if batch then
    if batch.held == nil then
      batch.held = is_held(settings[2], settings[3], KEYS.active)
    end
    return batch.held
  end
--- end
  return is_held(settings[2], settings[3], KEYS.active)
end
""",
        "add_standard": """\
--- include call
--- include add_job
--- include add_settings
--- include emit_capped
--- include mark_ready
local function add_standard(options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number()
  local settings = add_settings()
  local cap = settings[1]
  local id, job, reply = admit(sequence, options, cap)
  if reply then
    return reply
  end
--- when waiting_layout v5
  local target, held = settings[2] and KEYS.paused or KEYS.wait, add_held(settings)
--- else
--- when waiting_layout adaptive
  local target = KEYS.wait
  if settings[2] and (call('EXISTS', KEYS.paused) == 1 or call('EXISTS', KEYS.wait) == 0) then
    target = KEYS.paused
  end
--- elsewhen waiting_layout v6
  local target = KEYS.wait
--- else
  local target = settings[2] and KEYS.paused or KEYS.wait
--- end
  local held = add_held(settings)
--- end
--- when batch
  if batch then
    if options.lifo then
      call('RPUSH', target, id)
    else
      batch.target = target
      batch.waiting[#batch.waiting + 1] = id
    end
    batch.ready = batch.ready or not held
  else
    if options.lifo then
      call('RPUSH', target, id)
    else
      call('LPUSH', target, id)
    end
    mark_ready(KEYS.marker, held)
  end
--- else
  if options.lifo then
    call('RPUSH', target, id)
  else
    call('LPUSH', target, id)
  end
  mark_ready(KEYS.marker, held)
--- end
  emit_capped(KEYS.events, cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
""",
        "added_jobs": """\
""",
        "adding_settings": """\
""",
        "call": """\
local call = redis.call
""",
        "child_outcome": """\
--- include call
--- include parent_release
local function child_completed(parent, queue, id, child, value, now)
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    return
  end
  call('HSET', parent .. ':processed', child, value)
  if call('SCARD', pending) > 0 then
    return
  end
  release_parent(queue, parent, id, now)
end
local function defer_failure(queue, parent, id, child, now)
  local base = queue .. ':'
  if call('EXISTS', parent) == 0 then
    return
  end
  local reason = 'child ' .. child .. ' failed'
  local home
  if call('ZSCORE', base .. 'waiting-children', id) then
    home = base .. 'waiting-children'
  elseif call('ZSCORE', base .. 'delayed', id) then
    home = base .. 'delayed'
    call('HSET', parent, 'delay', '0')
  end
  if home then
    call('ZREM', home, id)
    call('HSET', parent, 'defa', reason)
    place_parent(base, parent, id, now)
  elseif call('ZSCORE', base .. 'failed', id) then
  else
    call('HSET', parent, 'defa', reason)
  end
end
local function child_failed(link, child, reason, now)
  local queue, id = link.queueKey, link.id
  local parent = queue .. ':' .. id
  if not (link.fpof or link.cpof or link.idof or link.rdof) then
    return
  end
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    return
  end
  if link.fpof then
    call('ZADD', parent .. ':unsuccessful', now, child)
    defer_failure(queue, parent, id, child, now)
    return
  end
  if link.cpof then
    call('HSET', parent .. ':failed', child, reason)
    release_parent(queue, parent, id, now)
    return
  end
  if call('SCARD', pending) == 0 then
    release_parent(queue, parent, id, now)
  end
  if link.idof then
    call('HSET', parent .. ':failed', child, reason)
  else
  end
end
""",
        "count_together": """\
--- include call
local function count_together(counter, count)
  local last = redis.pcall('INCRBY', counter, count)
  if type(last) ~= 'number' then
    return nil
  end
  if math.abs(last) > 4503599627370496 then
    call('DECRBY', counter, count)
    return nil
  end
  return last
end
""",
        "deduplicate": """\
--- include call
--- include emit
--- include emit_capped
--- include purge
--- when keep_last_if_active
--- lazy keep_next: keep_next
--- end
--- when reschedule
--- unless flow_node
--- lazy place_delayed: place_delayed
--- end
--- end
--- when keep_last_if_active or reschedule
local function deduplicate(rule, key, id, base, delayed, events, cap, options)
--- else
local function deduplicate(rule, key, id, base, delayed, events, cap)
--- end
  local dedup_id = rule and rule.id
  if not dedup_id then
    return nil
  end
  local ttl = rule.ttl
--- when keep_last_if_active
  local keeps = rule.keepLastIfActive
--- else
  local timed = ttl and ttl > 0
--- end
  local function claim(owner)
--- when keep_last_if_active
    if not keeps and ttl and ttl > 0 then
--- else
    if timed then
--- end
      call('SET', key, owner, 'PX', ttl)
    else
      call('SET', key, owner)
    end
  end
  local function report(job_id, other_id)
--- when debounced_event
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
--- end
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  local owner
--- when keep_last_if_active
--- unless flow_node
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
--- when stale_key_repair
      if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
        call('DEL', key)
        call('DEL', base .. 'dn:' .. dedup_id)
        claim(id)
        return nil
      end
--- end
--- when keep_last_if_active
      if keeps and load_keep_next()(dedup_id, id, owner, options) then
        report(owner, id)
      end
--- end
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
--- when stale_key_repair
    call('DEL', base .. 'dn:' .. dedup_id)
--- end
--- when keep_last_if_active
    if not keeps and not rule.extend and ttl and ttl > 0 then
--- else
    if timed and not rule.extend then
--- end
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
--- end
--- else
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
--- when stale_key_repair
      if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
        call('DEL', key)
        call('DEL', base .. 'dn:' .. dedup_id)
        claim(id)
        return nil
      end
--- end
--- when keep_last_if_active
      if keeps and load_keep_next()(dedup_id, id, owner, options) then
        report(owner, id)
      end
--- end
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
--- when stale_key_repair
    call('DEL', base .. 'dn:' .. dedup_id)
--- end
--- when keep_last_if_active
    if not keeps and not rule.extend and ttl and ttl > 0 then
--- else
    if timed and not rule.extend then
--- end
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
--- end
--- when keep_last_if_active
  local timed = ttl and ttl > 0
--- end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
--- when stale_key_repair
    if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
      call('DEL', key)
      call('DEL', base .. 'dn:' .. dedup_id)
      claim(id)
      return nil
    end
--- end
--- when keep_last_if_active
    if keeps and load_keep_next()(dedup_id, id, owner, options) then
      report(owner, id)
--- when reschedule
--- unless flow_node
      if rule.reschedule and call('ZSCORE', delayed, owner) then
        local delay = tonumber(options.delay) or 0
        call('HSET', base .. owner, 'delay', delay)
        load_place_delayed()(delayed, base .. 'marker', events, cap, owner, born_at, delay)
      end
--- end
--- end
      return owner
    end
--- end
    claim(owner)
  else
    local claimed
--- when keep_last_if_active
    if timed and not keeps then
--- else
    if timed then
--- end
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      return nil
    end
    owner = call('GET', key)
--- when stale_key_repair
    if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
      call('DEL', key)
      call('DEL', base .. 'dn:' .. dedup_id)
      claim(id)
      return nil
    end
--- end
--- when keep_last_if_active
    if keeps and load_keep_next()(dedup_id, id, owner, options) then
      report(owner, id)
--- when reschedule
--- unless flow_node
      if rule.reschedule and call('ZSCORE', delayed, owner) then
        local delay = tonumber(options.delay) or 0
        call('HSET', base .. owner, 'delay', delay)
        load_place_delayed()(delayed, base .. 'marker', events, cap, owner, born_at, delay)
      end
--- end
--- end
      return owner
    end
--- end
  end
  report(owner, id)
--- when reschedule
--- unless flow_node
  if rule.reschedule and call('ZSCORE', delayed, owner) then
    local delay = tonumber(options.delay) or 0
    call('HSET', base .. owner, 'delay', delay)
    load_place_delayed()(delayed, base .. 'marker', events, cap, owner, born_at, delay)
  end
--- end
--- end
  return owner
end
""",
        "default_cap": """\
--- include call
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
""",
        "deferred": """\
local deferred = nil
local emitted = 0
""",
        "delay_slot": """\
--- include call
local function delay_slot(delayed, now, delay)
  local due = now
  if delay > 0 then
    due = now + delay
  end
  local first, last = due * 4096, (due + 1) * 4096 - 1
  local taken = tonumber(call('ZREVRANGEBYSCORE', delayed, last, first, 'WITHSCORES', 'LIMIT', '0', '1')[2])
  if not taken then
    return first, due
  end
  if taken < last then
    return taken + 1, due
  end
  return last, due
end
""",
        "drop_old_marker": """\
--- include call
local function drop_old_marker(list)
  local tail = call('LINDEX', list, '-1')
  if not tail or string.sub(tail, 1, 2) ~= '0:' then
    return false
  end
  if call('LLEN', list) > 1 then
    call('RPOP', list)
    return false
  end
  return true
end
""",
        "duplicate_job": """\
--- include call
--- include emit_capped
--- include parent_release
local function relink(id, job)
  if call('ZSCORE', KEYS.completed, id) then
--- when deferred_parent_release
    local queue, parent_id = nil, nil
    if not deferring then
      queue, parent_id = link.queueKey, link.id
    end
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if not deferring and call('SCARD', pending) == 0 then
--- else
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
--- end
      release_parent(queue, parent, parent_id, born_at)
    end
  elseif pending ~= nil then
    call('SADD', pending, job)
  end
  call('HMSET', job, 'parentKey', parent, 'parent', cjson.encode(link))
end
local function answer_duplicate(id, job, cap)
  local present = call('HGET', job, 'parentKey')
  if parent == nil then
  elseif not present or present == parent then
    relink(id, job)
  elseif call('EXISTS', present) == 1 then
--- when deferred_parent_release
    if deferring then
      call('HSET', parent, 'flowAttachmentFailed', '1')
    end
--- end
    return -7
  else
--- when deferred_parent_release
    relink(id, job)
--- end
  end
  emit_capped(KEYS.events, cap, 'duplicated', 'jobId', id)
  return id .. ''
end
""",
        "each_alone": """\
local function alone_or_error(job_function, ...)
  local passed, reply = pcall(job_function, ...)
  if passed then
    return reply
  end
  local text = type(reply) == 'table' and reply.err or tostring(reply)
  return { string.match(text, ': %-(%u+ .*)$') or text }
end
""",
        "each_batch": """\
local function each_batch(items, visit)
  for from = 1, #items, 7000 do
    visit(unpack(items, from, math.min(from + 6999, #items)))
  end
end
""",
        "emit": """\
--- include call
--- when deferred
--- include deferred
--- end
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
--- when deferred
  emitted = emitted + 1
--- end
end
""",
        "emit_capped": """\
--- include call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
""",
        "ended_jobs": """\
""",
        "erase_job": """\
--- include call
--- include purge
--- include leave_pending
--- include requeue_parent
--- include release_dedup
local function unlink_hard(home, child)
  local emptied = 0
  local parents, dedup_ids = {}, {}
  while true do
    local link = call('HMGET', child, 'parentKey', 'deid')
    local parent = link[1]
    if not parent or parent == '' or call('EXISTS', parent) == 0 then
      break
    end
    local _, base, id = leave_pending(parent, child)
    if not base then
      break
    end
    if base ~= home then
      requeue_parent(base, id)
      break
    end
    emptied = emptied + 1
    parents[emptied], dedup_ids[emptied] = parent, link[2]
    child = parent
  end
  for level = emptied, 1, -1 do
    purge(parents[level])
    if dedup_ids[level] then
      call('DEL', home .. 'de:' .. dedup_ids[level])
    end
  end
end
local function erase_job(base, id)
  local job = base .. id
  unlink_hard(base, job)
  release_dedup(base, job, id)
  purge(job)
end
""",
        "event_cap": """\
--- include call
--- include default_cap
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
""",
        "failure_fields": """\
local function failure_fields(packed)
  local readable, fields = pcall(cmsgpack.unpack, packed)
  if not readable or type(fields) ~= 'table' or not fields[1] or #fields % 2 == 1 then
    return nil
  end
  for index = 1, #fields, 2 do
    local name = fields[index]
    if (name ~= 'failedReason' and name ~= 'stacktrace' and name ~= 'tm') or type(fields[index + 1]) ~= 'string' then
      return nil
    end
  end
  return fields
end
""",
        "fetch_in_place": """\
--- include call
--- include fetch_next
local function pop_after_finish()
  local next_id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  if not next_id then
    return pop_prioritized()
  end
  if not is_old_marker(next_id) then
    return next_id
  end
  call('LREM', KEYS.active, '1', next_id)
  if next_id ~= '0:0' then
    return nil
  end
  return assert(pop_prioritized(), 'no prioritized job after the marker 0:0')
end
local function fetch_in_place(base, now, options)
  return fetch_next(base, now, options, nil, pop_after_finish)
end
""",
        "fetch_next": """\
--- include call
--- when deferred
--- include deferred
--- end
--- include is_held
--- include queue_settings
--- include start_attempt
--- lazy promote_due: promote_due
--- include next_due
--- include rate_limit
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end
local function pop_prioritized()
  local id = call('ZPOPMIN', KEYS.prioritized)[1]
  if id then
    call('LPUSH', KEYS.active, id)
    return id
  end
  call('DEL', KEYS.pc)
  return nil
end
local function effective_maximum(global_maximum, options)
  if global_maximum then
    return tonumber(global_maximum)
  end
  local limiter = options.limiter
  if limiter and limiter.max then
    return tonumber(limiter.max)
  end
  return nil
end
--- when batch
local marked = false
local promoted_at = nil
--- end
local function activate(base, id, now, maximum, duration, options, token)
  local job = base .. id
  token = token or options.token
--- when token_for_deferred_failure
  if maximum and call('INCR', KEYS.limiter) == 1 then
--- else
  if maximum and call('HEXISTS', job, 'defa') == 0 and call('INCR', KEYS.limiter) == 1 then
--- end
    call('PEXPIRE', KEYS.limiter, math.floor(math.abs(duration)))
  end
--- when deferred
  if token ~= '0' then
    local lock = job .. ':lock'
    if deferred.locks[lock] == false then
      deferred.flush_released()
    end
    deferred.locks[lock] = token
  end
--- end
  if token ~= '0' then
    call('SET', job .. ':lock', token, 'PX', options.lockDuration)
  end
  call('XADD', KEYS.events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
--- when deferred
  emitted = emitted + 1
--- end
  local fields = start_attempt(job, now, options.name)
--- when batch
  if not marked then
    call('ZADD', KEYS.marker, '0', '0')
    marked = true
  end
--- else
  call('ZADD', KEYS.marker, '0', '0')
--- end
  return { fields, id, 0, 0 }
end
local function fetch_next(base, now, options, token, take)
  local known = queue_settings(KEYS.meta)
  local held = is_held(known[1], known[2], KEYS.active)
--- when batch
  if promoted_at ~= now then
--- unless waiting_layout v6
--- end
    local promoted = 0
    if call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
--- when waiting_layout v6
      local target = KEYS.wait
--- else
--- when waiting_layout adaptive
      local target = KEYS.wait
      if known[1] and (call('EXISTS', KEYS.paused) == 1 or call('EXISTS', KEYS.wait) == 0) then
        target = KEYS.paused
      end
--- elsewhen waiting_layout v6
      local target = KEYS.wait
--- else
      local target = known[1] and KEYS.paused or KEYS.wait
--- end
--- end
      promoted = load_promote_due()(base, now, target, held)
    end
    if promoted < 1000 then
      promoted_at = now
    end
  end
--- else
--- unless waiting_layout v6
--- end
  local promoted = 0
  if call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
--- when waiting_layout v6
    local target = KEYS.wait
--- else
--- when waiting_layout adaptive
    local target = KEYS.wait
    if known[1] and (call('EXISTS', KEYS.paused) == 1 or call('EXISTS', KEYS.wait) == 0) then
      target = KEYS.paused
    end
--- elsewhen waiting_layout v6
    local target = KEYS.wait
--- else
    local target = known[1] and KEYS.paused or KEYS.wait
--- end
--- end
    promoted = load_promote_due()(base, now, target, held)
  end
--- end
  local maximum = effective_maximum(known[3], options)
  local pause = limited_for(KEYS.limiter, maximum)
  if pause > 0 then
    return { 0, 0, pause, 0 }
  end
  if held then
    return { 0, 0, 0, 0 }
  end
  local duration = options.limiter and options.limiter.duration or known[4]
  local id = take()
  if id then
    return activate(base, id, now, maximum, duration, options, token)
  end
  local due = next_due(KEYS.delayed)
  if due then
    return { 0, 0, 0, due }
  end
  return nil
end
""",
        "fetched_bytes": """\
local fetched_bytes = 0
""",
        "finish_job": """\
--- include call
--- include emit
--- when deferred
--- include deferred
--- end
--- include purge
--- include split_job_key
--- include release_lock
--- include write_fields
--- include default_cap
--- include plain_count
--- include queue_settings
--- include fetch_next
--- lazy child_outcome: child_completed, child_failed
--- lazy unlink_child: unlink_given
--- lazy retention: keep_by_age, keep_by_count
--- lazy metrics: record_metric
--- when keep_last_if_active
--- lazy requeue_kept: requeue_kept
--- end
local function pop_after_finish()
  local next_id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  if not next_id then
    return pop_prioritized()
  end
  if not is_old_marker(next_id) then
    return next_id
  end
  call('LREM', KEYS.active, '1', next_id)
  if next_id ~= '0:0' then
    return nil
  end
  return assert(pop_prioritized(), 'no prioritized job after the marker 0:0')
end
local function release_own_dedup(base, id, dedup_id)
  local key = base .. 'de:' .. dedup_id
  local remaining = call('PTTL', key)
  if remaining == 0 then
    call('DEL', key)
  elseif remaining == -1 and call('GET', key) == id then
    call('DEL', key)
  else
  end
end
local function trim_own(events, may_wait)
  local known = queue_settings(KEYS.meta)
  local cap = known[5]
  if not cap then
    cap = store_default_cap(KEYS.meta)
    known[5] = cap
  end
--- when deferred
  if may_wait and plain_count(cap) then
    deferred.trims = deferred.trims + 1
    deferred.cap, deferred.emitted = cap + 0, emitted
    return
  end
--- end
  call('XTRIM', events, 'MAXLEN', '~', cap)
end
--- when deferred
local function count_metric(hash, size, now, may_wait)
  if may_wait and deferred.metric_at[hash] == now then
    deferred.counted[hash] = (deferred.counted[hash] or 0) + 1
    return
  end
  deferred.flush_finished()
  if load_metrics()(hash, size, now) < 4503599627370496 then
    deferred.metric_at[hash] = now
  end
end
--- end
local function finish_job(base, id, job, now, field, result, outcome, finished, metrics, token, options, packed_fields,
  fetch)
  local active, events = KEYS.active, KEYS.events
  local has_failed = outcome == 'failed'
  local stored = redis.pcall('HMGET',
    job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
  )
  if not stored[1] and call('EXISTS', job) == 0 then
    return -1
  end
--- when deferred
  local may_wait_for_children = not has_failed and not deferred.childless
--- else
  local may_wait_for_children = outcome == 'completed'
--- end
  if may_wait_for_children then
    local pending, unsuccessful = job .. ':dependencies', job .. ':unsuccessful'
    if call('EXISTS', pending, unsuccessful) > 0 then
      if call('SCARD', pending) ~= 0 then
        return -4
      end
      if call('ZCARD', unsuccessful) ~= 0 then
        return -9
      end
    end
  end
--- unless batch
  if not options then
    options = cmsgpack.unpack(ARGV.options)
    token = options.token
  end
--- end
  local refusal = release_lock(job, KEYS.stalled, token, id)
  if refusal then
    return refusal
  end
  write_fields(job, packed_fields)
  local keep_count, keep_age = options.keepJobs.count, options.keepJobs.age
  if packed_fields ~= '' or stored.err then
    stored = call('HMGET',
      job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
    )
  end
  local parent, link = stored[2], nil
  local parent_queue, parent_id = nil, ''
  if stored[3] then
    link = cjson.decode(stored[3])
    parent_queue, parent_id = link.queueKey, link.id
  end
  local has_parent = parent and parent ~= ''
--- when deferred
  local may_wait = not (has_parent or link or keep_age or (keep_count and keep_count > 0))
  if not may_wait then
    deferred.flush_finished()
  end
--- else
  local may_wait = false
--- end
  if call('LREM', active, '-1', id) == 0 then
    return -3
  end
  trim_own(events, may_wait)
  if stored[4] then
    release_own_dedup(base, id, stored[4])
--- when keep_last_if_active
    local record = base .. 'dn:' .. stored[4]
    if call('EXISTS', record) == 1 then
      load_requeue_kept()(base, record, stored[4], now)
--- when batch
      promoted_at = nil
--- end
    end
--- end
  end
  if parent_id == '' and has_parent then
    local parent_base
    parent_base, parent_id = split_job_key(parent)
    parent_queue = string.sub(parent_base, 1, -2)
  end
  if parent_id == '' then
  else
--- when batch
    promoted_at = nil
--- end
    local child_completed, child_failed = load_child_outcome()
    if outcome ~= 'completed' then
      if link then
        child_failed(link, job, result, now)
      else
      end
    elseif parent then
      child_completed(parent, parent_queue, parent_id, job, result, now)
    else
    end
  end
  local attempts_made, attempts_text = plain_count(stored[5])
  if not attempts_made then
    attempts_made = call('HINCRBY', job, 'atm', '1')
    attempts_text = attempts_made
  end
  if keep_count == 0 then
    purge(job)
    if has_parent then
      load_unlink_child()(parent, job)
    end
  else
--- when deferred
    if may_wait then
      local members = deferred.finished[finished] or {}
      deferred.finished[finished] = members
      members[#members + 1], members[#members + 2] = now, id
    else
      if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
        call('HSET', job, 'atm', attempts_text)
        call('ZADD', finished, now, id)
      end
    end
--- else
    if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
      call('HSET', job, 'atm', attempts_text)
      call('ZADD', finished, now, id)
    end
--- end
    call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
    if (has_failed and (stored[6] or parent_id ~= '')) then
      call('HDEL', job, 'defa')
    end
    if keep_age ~= nil then
--- when age_retention_limit
      load_retention()(base, finished, now, keep_age, options.keepJobs.limit)
--- else
      load_retention()(base, finished, now, keep_age)
--- end
    end
    if keep_count ~= nil and keep_count > 0 then
      local _, keep_by_count = load_retention()
      keep_by_count(base, finished, keep_count)
    end
  end
--- when deferred
  call('XADD', events,
    '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
  )
  emitted = emitted + 1
  if has_failed and attempts_made >= tonumber(options.attempts) then
    call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_text)
    emitted = emitted + 1
  end
--- else
  call('XADD', events,
    '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
  )
  if has_failed and attempts_made >= tonumber(options.attempts) then
    call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_text)
  end
--- end
  if options.maxMetricsSize ~= '' then
--- when deferred
    count_metric(metrics, options.maxMetricsSize, now, may_wait)
--- else
    load_metrics()(metrics, options.maxMetricsSize, now)
--- end
  end
  if fetch then
    local reply = fetch_next(base, now, options, token, pop_after_finish)
    if reply then
      return reply
    end
  end
  if call('LLEN', KEYS.wait) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS.prioritized) == 0 then
    emit(events, 'drained')
  else
  end
  return 0
end
""",
        "finish_rest": """\
--- include ended_jobs
--- include call
--- include each_alone
--- include finish_job
--- include deferred
--- include fetched_bytes
local function finish_rest(base, all_options, heads, from, count, most_bytes, replies)
  local locks, names, pending = {}, {}, {}
  for number = from, count do
    local at = 7 * number
    local job = base .. heads[at - 6]
    if heads[at - 5] ~= '0' then
      names[#names + 1] = job .. ':lock'
    end
    if heads[at - 3] == 0 then
      pending[#pending + 1] = job .. ':dependencies'
      pending[#pending + 1] = job .. ':unsuccessful'
    end
  end
  if names[1] then
    local owners = call('MGET', unpack(names))
    for number = 1, #names do
      local name = names[number]
      locks[name] = owners[number] or nil
    end
  end
  deferred = {
    locks = locks, released = {}, stalled = {}, finished = {}, counted = {}, metric_at = {},
    trims = 0, cap = 0, emitted = 0,
    childless = not pending[1] or call('EXISTS', unpack(pending)) == 0,
  }
  function deferred.flush_released()
    local released, stalled = deferred.released, deferred.stalled
    if released[1] then
      call('DEL', unpack(released))
      deferred.released = {}
    end
    if stalled[1] then
      call('SREM', KEYS.stalled, unpack(stalled))
      deferred.stalled = {}
    end
  end
  function deferred.flush_finished()
    if deferred.trims > 0 then
      local cap = (deferred.cap + emitted - deferred.emitted) .. ''
      for _ = 1, deferred.trims do
        if call('XTRIM', KEYS.events, 'MAXLEN', '~', cap) == 0 then
          break
        end
      end
      deferred.trims = 0
    end
    for key, members in pairs(deferred.finished) do
      call('ZADD', key, unpack(members))
      deferred.finished[key] = nil
    end
    for key, count in pairs(deferred.counted) do
      call('HINCRBY', key, 'count', count)
      deferred.counted[key] = nil
    end
    deferred.metric_at = {}
  end
  for number = from, count do
    local at = 7 * number
    local outcome_at = 2 * heads[at] + 3
    local id, token = heads[at - 6], heads[at - 5]
    local failed, place = heads[at - 3] == 1, heads[at - 1]
    replies[number] = alone_or_error(finish_job, base, id, base .. id, heads[at - 4],
      failed and 'failedReason' or 'returnvalue', ARGV[outcome_at - 1], failed and 'failed' or 'completed',
      failed and KEYS.failed or KEYS.completed, failed and KEYS.failed_metrics or KEYS.completed_metrics, token,
      all_options[place], ARGV[outcome_at], heads[at - 2] == 1)
    if fetched_bytes > most_bytes then
      break
    end
  end
  deferred.flush_released()
  deferred.flush_finished()
end
""",
        "first_attempt": """\
--- include start_attempt
local PLACES = { name = 1, data = 2, opts = 3, timestamp = 4, delay = 5, priority = 6 }
local function first_attempt(job, id, now, worker, found)
  local fields = found or call('HGETALL', job)
  if #fields == 12 and not worker then
    local answer = { false, false, false, false, false, false, id }
    for index = 1, 11, 2 do
      local name = fields[index]
      local place = PLACES[name]
      if not place then
        answer = nil
        break
      end
      answer[place] = fields[index + 1]
    end
    if answer then
      call('HMSET', job, 'processedOn', now, 'ats', '1')
      fetched_bytes = fetched_bytes + #answer[2]
      return answer
    end
  end
  fields = start_attempt(job, now, worker, found)
  return fields and { fields, id, 0, 0 }
end
""",
        "is_active": """\
--- include call
local function is_active(active, id)
  local place = redis.pcall('LPOS', active, id)
  if type(place) ~= 'table' then
    return place ~= false
  end
  for _, other in ipairs(call('LRANGE', active, '0', '-1')) do
    if other == id then
      return true
    end
  end
  return false
end
""",
        "is_held": """\
--- include call
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
""",
        "job_head": """\
""",
        "keep_next": """\
--- include call
--- include is_active
local function keep_next(dedup_id, id, owner, options)
  if not is_active(base .. 'active', owner) then
    return false
  end
  local kept = base .. 'dn:' .. dedup_id
  local fields = { 'name', name, 'data', data, 'opts', cjson.encode(options), 'jid', id .. '' }
  local function add(field, value)
    if value then
      fields[#fields + 1], fields[#fields + 2] = field, value
    end
  end
  if parent then
    add('pk', parent)
    add('pd', cjson.encode(link))
  end
  add('pdk', pending)
  add('rjk', scheduler)
  call('DEL', kept)
  call('HSET', kept, unpack(fields))
  call('PERSIST', base .. 'de:' .. dedup_id)
  return true
end
""",
        "leave_pending": """\
--- include call
--- include split_job_key
local function leave_pending(parent, child)
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    return false, nil, nil
  end
  if call('SCARD', pending) > 0 then
    return true, nil, nil
  end
  local base, id = split_job_key(parent)
  if call('ZREM', base .. 'waiting-children', id) == 0 then
    return true, nil, nil
  end
  return true, base, id
end
""",
        "mark_delayed": """\
--- include call
--- include next_due
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
""",
        "mark_ready": """\
--- include call
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
""",
        "metrics": """\
--- include call
local function record_metric(hash, size, now)
  local finished_before = call('HINCRBY', hash, 'count', '1') - 1
  local previous = call('HGET', hash, 'prevTS')
  if not previous then
    call('HSET', hash, 'prevTS', now, 'prevCount', '0')
    return finished_before + 1
  end
  local minutes = math.min(math.floor(now / 60000) - math.floor(previous / 60000), tonumber(size))
  if not (minutes > 0) then
    return finished_before + 1
  end
  local list = hash .. ':data'
  local points = { finished_before - call('HGET', hash, 'prevCount') }
  for _ = 2, minutes do
    if #points == 7000 then
      call('LPUSH', list, unpack(points))
      points = {}
    end
    points[#points + 1] = 0
  end
  call('LPUSH', list, unpack(points))
  call('LTRIM', list, '0', size - 1)
  call('HSET', hash, 'prevCount', finished_before, 'prevTS', now)
  return finished_before + 1
end
""",
        "next_due": """\
--- include call
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
""",
        "parent_release": """\
--- include call
--- include emit
--- include queue_gate
--- include mark_ready
--- include mark_delayed
--- include zadd_by_priority
local function place_parent(base, parent, id, now)
  local numbers = call('HMGET', parent, 'priority', 'delay')
  local priority, delay = tonumber(numbers[1]) or 0, tonumber(numbers[2]) or 0
  local marker, events = base .. 'marker', base .. 'events'
  if delay > 0 then
    local delayed, due = base .. 'delayed', now + delay
    call('ZADD', delayed, due * 4096, id)
    emit(events, 'delayed', 'jobId', id, 'delay', due)
    mark_delayed(marker, delayed)
    return
  end
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  if priority == 0 then
    call('RPUSH', target, id)
  else
    zadd_by_priority(base .. 'prioritized', base .. 'pc', priority, id)
  end
  mark_ready(marker, held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'waiting-children')
end
local function release_parent(queue, parent, id, now)
  if call('EXISTS', parent) == 0 then
    return
  end
  local base = queue .. ':'
  local waiting_children = base .. 'waiting-children'
  if not call('ZSCORE', waiting_children, id) then
    return
  end
  call('ZREM', waiting_children, id)
  place_parent(base, parent, id, now)
end
""",
        "pending_again": """\
--- include call
local function pending_again(job, state)
  local parent = call('HGET', job, 'parentKey')
  if not parent or call('EXISTS', parent) == 0 then
    return
  end
  local removed
  if state == 'failed' then
    removed = call('ZREM', parent .. ':unsuccessful', job)
    if removed == 0 then
      removed = call('HDEL', parent .. ':failed', job)
    end
  else
    removed = call('HDEL', parent .. ':processed', job)
  end
  if removed > 0 then
    call('SADD', parent .. ':dependencies', job)
  else
  end
end
""",
        "place_delayed": """\
--- include call
--- include emit_capped
--- include delay_slot
--- include mark_delayed
local function place_delayed(delayed, marker, events, cap, id, now, delay)
  local score, due = delay_slot(delayed, now, delay)
  call('ZADD', delayed, score, id)
  emit_capped(events, cap, 'delayed', 'jobId', id, 'delay', due)
  mark_delayed(marker, delayed)
end
""",
        "plain_add": """\
--- include job_head
--- include call
local function is_plain_add(head, options, counter, meta)
  if type(options) ~= 'table' or options.de or not (
    type(head[1]) == 'string' and type(head[2]) == 'string' and head[5] == nil and head[6] == nil
    and not head[8]
  ) then
    return false
  end
  local job = head[1] .. head[2]
  return head[2] == '' or (job ~= counter and job ~= meta and call('EXISTS', job) == 0)
end
local function store_plain(head, options, data, sequence, events)
  local id = head[2]
  local job = head[1] .. id
  if id == '' then
    id = sequence
    job = job .. id
--- when text_ids
    id = id .. ''
--- else
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
--- end
  else
  end
  call('HMSET', job,
    'name', head[3], 'data', data, 'opts', cjson.encode(options), 'timestamp', head[4], 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  )
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', head[3])
  return id
end
""",
        "plain_count": """\
local function plain_count(stored)
  if not stored then
    return 1, '1'
  end
  if #stored < 14 and string.find(stored, '^[1-9]%d*$') then
    local count = stored + 1
    return count, count .. ''
  end
  return nil
end
""",
        "plain_ms": """\
local function is_plain_ms(number)
  return type(number) == 'number' and number >= 1 and number < 100000000000000 and number % 1 == 0
end
""",
        "pop_next": """\
--- include call
--- include fetch_next
local function pop_next()
  local id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  if id and is_old_marker(id) then
    call('LREM', KEYS.active, '1', id)
    id = call('RPOPLPUSH', KEYS.wait, KEYS.active)
  end
  if id then
    return id
  end
  return pop_prioritized()
end
""",
        "priority_of": """\
--- include call
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
""",
        "priority_step": """\
local PRIORITY_STEP = 4294967296
""",
        "promote_due": """\
--- include call
--- include emit
--- include mark_ready
--- include zadd_by_priority
--- include priority_of
local function promote_due(base, now, target, held)
  local due = call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  call('ZREM', KEYS.delayed, unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      call('LPUSH', target, id)
    else
      zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
    end
    emit(KEYS.events, 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(KEYS.marker, held)
  return #due
end
""",
        "purge": """\
--- include call
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
""",
        "queue_gate": """\
--- include call
--- include is_held
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
--- when waiting_layout adaptive
  local target = wait
  if settings[1] and (call('EXISTS', paused) == 1 or call('EXISTS', wait) == 0) then
    target = paused
  end
--- elsewhen waiting_layout v6
  local target = wait
--- else
  local target = settings[1] and paused or wait
--- end
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
""",
        "queue_settings": """\
--- include call
local settings = nil
local function queue_settings(meta)
  if not settings then
    settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
  end
  return settings
end
""",
        "rate_limit": """\
--- include call
local function limited_for(limiter, maximum)
  if not maximum then
    return 0
  end
  local used = call('GET', limiter)
  if not (maximum <= tonumber(used or 0)) then
    return 0
  end
  local remaining = call('PTTL', limiter)
  if remaining > 0 then
    return remaining
  end
  if remaining == 0 then
    call('DEL', limiter)
  end
  return 0
end
""",
        "release_dedup": """\
--- include call
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
--- when keep_last_if_active
    call('DEL', base .. 'dn:' .. dedup_id)
--- end
  else
  end
end
""",
        "release_lock": """\
--- include call
--- when deferred
--- include deferred
--- end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
--- when deferred
  local owner = deferred.locks[lock]
  if owner == nil then
    owner = call('GET', lock)
  end
--- else
  local owner = call('GET', lock)
--- end
  if owner == token then
--- when deferred
    deferred.locks[lock] = false
    deferred.released[#deferred.released + 1] = lock
    deferred.stalled[#deferred.stalled + 1] = id
--- else
    call('DEL', lock)
    call('SREM', stalled, id)
--- end
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
""",
        "release_unless_pending": """\
--- include call
--- include parent_release
local function release_unless_pending(queue, parent, pending, id, now)
  if call('HEXISTS', parent, 'flowAttachmentFailed') == 1 then
    call('HDEL', parent, 'flowAttachmentFailed')
  elseif call('SCARD', pending) == 0 then
    release_parent(queue, parent, id, now)
  else
  end
end
""",
        "remove_members": """\
--- include call
--- include each_batch
local function remove_members(set, ids)
  each_batch(ids, function(...)
    call('ZREM', set, ...)
  end)
end
""",
        "remove_tree": """\
--- include call
--- include emit_capped
--- include event_cap
--- include purge
--- include split_job_key
--- include unlink_child
--- include release_dedup
local function leave_state(base, id)
  for _, name in ipairs({ 'completed', 'waiting-children', 'delayed', 'failed', 'prioritized' }) do
    if call('ZSCORE', base .. name, id) then
      call('ZREM', base .. name, id)
      return name
    end
  end
  for _, name in ipairs({ 'wait', 'paused', 'active' }) do
    if call('LREM', base .. name, '1', id) == 1 then
      return name
    end
  end
  return 'unknown'
end
local function is_spared(base, id)
  if call('GET', base .. id .. ':lock') then
    return true
  end
  if call('ZSCORE', base .. 'failed', id) then
    return true
  end
  return false
end
local MOST_ROUNDS = 100
local function begin_removal(base, id, parent, children)
  if children == 'unprocessed' and is_spared(base, id) then
    return false
  end
  if parent then
    unlink_given(parent, base .. id)
  else
    unlink_looked_up(base .. id)
  end
  return true
end
local function end_removal(base, id)
  local job = base .. id
  local state = leave_state(base, id)
  release_dedup(base, job, id)
  if purge(job) == 0 then
    return
  end
  emit_capped(base .. 'events', event_cap(base .. 'meta'), 'removed', 'jobId', id, 'prev', state)
end
local function read_children(job, kind)
  if kind == 1 then
    return call('HGETALL', job .. ':processed'), 2
  elseif kind == 2 then
    return call('HGETALL', job .. ':failed'), 2
  elseif kind == 3 then
    return call('ZRANGE', job .. ':unsuccessful', '0', '-1'), 1
  end
  return call('SMEMBERS', job .. ':dependencies'), 1
end
local function next_child(open)
  while true do
    local child = open.items[open.at]
    if child then
      if open.kind == 4 then
      elseif open.kind == 3 then
      else
      end
      open.at = open.at + open.step
      return child
    end
    if open.kind == 4 then
      return nil
    end
    open.kind, open.at = open.kind + 1, 1
    open.items, open.step = read_children(open.job, open.kind)
  end
end
local function remove_children(job, children)
  local before_first = children == 'all' and 0 or 3
  local path, rounds, depth = {}, {}, 0
  local function open(base, id, key)
    rounds[key] = (rounds[key] or 0) + 1
    if rounds[key] > MOST_ROUNDS then
      error('a job is its own descendant', 0)
    end
    depth = depth + 1
    path[depth] = { base = base, id = id, job = key, kind = before_first, items = {}, at = 1, step = 1 }
  end
  open(nil, nil, job)
  while depth > 0 do
    local top = path[depth]
    local child = next_child(top)
    if child then
      local base, id = split_job_key(child)
      if begin_removal(base, id, top.job, children) then
        open(base, id, base .. id)
      end
    else
      path[depth], depth = nil, depth - 1
      rounds[top.job] = rounds[top.job] - 1
      if top.base then
        end_removal(top.base, top.id)
      end
    end
  end
end
local function remove_tree(base, id, with_children)
  begin_removal(base, id)
  if with_children then
    remove_children(base .. id, 'all')
  end
  end_removal(base, id)
end
""",
        "requeue_kept": """\
--- include call
--- include emit_capped
--- include event_cap
--- include queue_gate
--- include mark_ready
--- include zadd_by_priority
--- include place_delayed
--- include store_job
--- when deferred
--- include deferred
--- end
local function place_kept(id, options, now, delay, cap)
  if delay ~= 0 then
    place_delayed(KEYS.delayed, KEYS.marker, KEYS.events, cap, id, now, tonumber(delay))
    return
  end
  local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
  local priority = options.priority or 0
--- when scheduler_priority positive
  if priority > 0 then
--- else
  if priority ~= 0 then
--- end
    zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
  else
    if options.lifo then
      call('RPUSH', target, id)
    else
      call('LPUSH', target, id)
    end
  end
  mark_ready(KEYS.marker, held)
  emit_capped(KEYS.events, cap, 'waiting', 'jobId', id)
end
local function requeue_kept(base, record, dedup_id, now)
  local kept = call('HMGET', record, 'name', 'data', 'opts', 'pk', 'pd', 'pdk', 'rjk', 'jid')
  local number = call('INCR', base .. 'id')
  local id = kept[8] or number .. ''
  local options = cjson.decode(kept[3])
  local rule, key = options.de, base .. 'de:' .. dedup_id
  local ttl = rule and not rule.keepLastIfActive and rule.ttl
  if ttl and ttl > 0 then
    call('SET', key, id, 'PX', ttl)
  else
    call('SET', key, id)
  end
  local cap, job = event_cap(KEYS.meta), base .. id
  store_job(KEYS.events, job, id, kept[1], kept[2], now, options, kept[4] or nil, nil, kept[7], nil,
    kept[5])
--- when deferred
  emitted = emitted + 1
--- end
  place_kept(id, options, tonumber(now), options.delay or 0, cap)
  if kept[6] then
    call('SADD', kept[6], job)
  end
  call('DEL', record)
end
""",
        "requeue_parent": """\
--- include call
--- include queue_gate
--- include mark_ready
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
""",
        "retention": """\
--- include call
--- include purge
--- when batch
--- include fetched_bytes
--- end
--- include unlink_child
--- when age_retention_limit
--- include remove_members
--- end
local function forget(base, ids)
  for index = 1, #ids do
    local job = base .. ids[index]
    unlink_looked_up(job)
    purge(job)
--- when batch
    fetched_bytes = fetched_bytes + 2000
--- end
  end
end
--- when age_retention_limit
local function keep_by_age(base, finished, now, age, limit)
  limit = limit or 1000
  local oldest = now - age * 1000
  local ids = call('ZREVRANGEBYSCORE', finished, oldest, '-inf', 'LIMIT', '0', limit)
  if not ids[1] then
    return
  end
  forget(base, ids)
  if #ids < limit then
    call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
  else
    remove_members(finished, ids)
  end
end
--- else
local function keep_by_age(base, finished, now, age)
  local oldest = now - age * 1000
  forget(base, call('ZREVRANGEBYSCORE', finished, oldest, '-inf'))
  call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
end
--- end
local function keep_by_count(base, finished, count)
  forget(base, call('ZREVRANGE', finished, count, '-1'))
  call('ZREMRANGEBYRANK', finished, '0', -(count + 1))
end
""",
        "scheduler_current": """\
--- include call
local function is_current_iteration(job, id, schedulers)
  local scheduler = call('HGET', job, 'rjk')
  if not scheduler then
    return false
  end
  local slot = call('ZSCORE', schedulers, scheduler)
  if slot and id == 'repeat:' .. scheduler .. ':' .. slot then
    return true
  end
  return false
end
""",
        "scheduler_iteration": """\
--- include call
--- include emit_capped
--- include queue_gate
--- include mark_ready
--- include zadd_by_priority
--- include place_delayed
--- include store_job
local function create_iteration(job, id, name, data, options, now, delay, scheduler, cap)
  local events = KEYS.events
  options.delay = delay
  options.jobId = id
  store_job(events, job, id, name, data, now, options, nil, nil, scheduler)
  if delay ~= 0 then
    place_delayed(KEYS.delayed, KEYS.marker, events, cap, id, now, delay)
    return
  end
  local target, held = queue_gate(KEYS.meta, KEYS.active, KEYS.wait, KEYS.paused)
  local priority = options.priority or 0
--- when scheduler_priority positive
  if priority > 0 then
--- else
  if priority ~= 0 then
--- end
    zadd_by_priority(KEYS.prioritized, KEYS.pc, priority, id)
  else
    if options.lifo then
      call('RPUSH', target, id)
    else
      call('LPUSH', target, id)
    end
  end
  mark_ready(KEYS.marker, held)
  emit_capped(events, cap, 'waiting', 'jobId', id)
end
""",
        "scheduler_slot": """\
--- when scheduler_rules 5.62
local function next_slot(previous, every, now, offset, start)
--- else
local function next_slot(previous, every, now, given_offset, start)
  local offset = tonumber(given_offset) or 0
  local function slot_after_now()
    local slot = math.floor(now / every) * every + offset
    return slot > now and slot or slot + every
  end
--- end
  local slot = now
  if previous then
    slot = previous + every
    if slot < now then
--- when scheduler_rules 5.62
      slot = math.floor(now / every) * every + every + offset
--- else
      slot = slot_after_now()
--- end
    else
    end
--- when scheduler_rules 5.62
  elseif start and tonumber(start) > now then
    slot = tonumber(start)
--- else
  elseif start then
    slot = math.max(now, tonumber(start))
  elseif offset > 0 then
    slot = slot_after_now()
--- end
  else
  end
  if offset == 0 then
    offset = slot - math.floor(slot / every) * every
  end
  return math.floor(slot), math.floor(offset)
end
""",
        "split_job_key": """\
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
""",
        "start_attempt": """\
--- include call
--- include plain_count
--- when batch
--- include fetched_bytes
--- end
local function start_attempt(job, now, worker, known_fields)
  local fields = known_fields or call('HGETALL', job)
  local count = #fields
  local text, at_started, at_processed, at_worker = '1', nil, nil, nil
  for index = 1, count, 2 do
    local name = fields[index]
    if name == 'ats' then
      at_started = index + 1
      local _, counted = plain_count(fields[at_started])
      text = counted
    elseif name == 'processedOn' then
      at_processed = index + 1
    elseif name == 'pb' then
      at_worker = index + 1
--- when batch
    elseif name == 'data' then
      fetched_bytes = fetched_bytes + #fields[index + 1]
--- end
    end
  end
  if not text or (worker and type(worker) ~= 'string') then
    if known_fields then
      return nil
    end
    if worker then
      call('HMSET', job, 'processedOn', now, 'pb', worker)
    else
      call('HMSET', job, 'processedOn', now)
    end
    call('HINCRBY', job, 'ats', '1')
    return call('HGETALL', job)
  end
  if at_processed then
    fields[at_processed] = now
  else
    fields[count + 1], fields[count + 2] = 'processedOn', now
    count = count + 2
  end
  if worker then
    call('HMSET', job, 'processedOn', now, 'pb', worker, 'ats', text)
    if at_worker then
      fields[at_worker] = worker
    else
      fields[count + 1], fields[count + 2] = 'pb', worker
      count = count + 2
    end
  else
    call('HMSET', job, 'processedOn', now, 'ats', text)
  end
  if at_started then
    fields[at_started] = text
  else
    fields[count + 1], fields[count + 2] = 'ats', text
  end
  return fields
end
""",
        "store_job": """\
--- include call
--- when keep_last_if_active
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded, link_text)
--- else
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
--- end
--- when batch
  local text = encoded and encoded[options]
  if not text then
    text = cjson.encode(options)
    if encoded then
      encoded[options] = text
    end
  end
--- else
  local text = cjson.encode(options)
--- end
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
--- when keep_last_if_active
    if link_text == nil then
      link_text = cjson.encode(link)
    end
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', link_text
--- else
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
--- end
    count = 16
  end
  if scheduler then
    fields[count + 1], fields[count + 2] = 'rjk', scheduler
    count = count + 2
  end
  local rule = options.de
  if rule and rule.id then
    fields[count + 1], fields[count + 2] = 'deid', rule.id
    count = count + 2
  end
  call('HMSET', job, unpack(fields, 1, count))
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
end
""",
        "take_key": """\
--- include call
--- include emit_capped
local function take_key(rule, key, id, base, events, cap)
  local dedup_id, ttl = rule.id, rule.ttl
  if not dedup_id then
    return nil
  end
  local timed, at_once = ttl and ttl > 0, redis.REDIS_VERSION_NUM
  local extends, owner, prolonged = timed and rule.extend, nil, nil
  if extends then
    owner = call('GET', key)
    if not owner then
      call('SET', key, id, 'PX', ttl)
      return nil
    end
    prolonged = at_once and redis.pcall('PEXPIRE', key, ttl, 'XX') == 1
  else
    local also = at_once and 'GET' or 'NX'
    if timed then
      owner = call('SET', key, id, 'PX', ttl, 'NX', also)
    else
      owner = call('SET', key, id, 'NX', also)
    end
    if not at_once then
      owner = not owner and call('GET', key)
    end
    if not owner then
      return nil
    end
  end
  if not prolonged then
--- when stale_key_repair
    if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
      call('DEL', key)
      call('DEL', base .. 'dn:' .. dedup_id)
      take_key(rule, key, id, base, events, cap)
      return nil
    end
--- end
    if extends then
      call('SET', key, owner, 'PX', ttl)
    end
  end
--- when debounced_event
  emit_capped(events, cap, 'debounced', 'jobId', owner, 'debounceId', dedup_id)
--- end
  emit_capped(events, cap, 'deduplicated', 'jobId', owner, 'deduplicationId', dedup_id, 'deduplicatedJobId',
    id)
  return owner
end
""",
        "trim_events": """\
--- include call
--- include event_cap
local function trim_events(meta, events)
  call('XTRIM', events, 'MAXLEN', '~', event_cap(meta))
end
""",
        "unlink_child": """\
--- include call
--- include emit
--- include leave_pending
--- include requeue_parent
local function unlink_given(parent, child)
  local linked, base, id = leave_pending(parent, child)
  if base then
    requeue_parent(base, id)
    emit(base .. 'events', 'waiting', 'jobId', id, 'prev', 'waiting-children')
  end
  return linked
end
local function unlink_looked_up(child)
  local parent = call('HGET', child, 'parentKey')
  if not parent or parent == '' or call('EXISTS', parent) == 0 then
    return
  end
  unlink_given(parent, child)
end
""",
        "write_fields": """\
--- include call
local function write_fields(job, packed)
  local items = packed ~= '' and cmsgpack.unpack(packed)
  if items then
    call('HMSET', job, unpack(items))
  end
end
""",
        "zadd_by_priority": """\
--- include call
--- include priority_step
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
""",
    }
)
