"""Hold the packaged Lua scripts; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

from bullmq_protocol.command import Script

ADD_DELAYED_JOB = Script(
    name="addDelayedJob",
    sha1="485cb7ac8b9e32a9ef94da2b0a76b62240e16e72",
    keys=6,
    source="""\
local call = redis.call
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
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
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
  end
  call('HMSET', job,
    'name', head[3], 'data', data, 'opts', cjson.encode(options), 'timestamp', head[4], 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  )
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', head[3])
  return id
end
local function load_add_delayed()
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = cjson.encode(options)
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function load_deduplicate()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function deduplicate(rule, key, id, base, delayed, events, cap)
  local dedup_id = rule and rule.id
  if not dedup_id then
    return nil
  end
  local ttl = rule.ttl
  local timed = ttl and ttl > 0
  local function claim(owner)
    if timed then
      call('SET', key, owner, 'PX', ttl)
    else
      call('SET', key, owner)
    end
  end
  local function report(job_id, other_id)
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  local owner
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
    if timed and not rule.extend then
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    claim(owner)
  else
    local claimed
    if timed then
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      return nil
    end
    owner = call('GET', key)
  end
  report(owner, id)
  return owner
end
return deduplicate
end
local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data
local function open_job(head, job_data)
  base, custom_id, name, born_at = head[1], head[2], head[3], head[4]
  parent, pending, link = head[5], head[6], head[7]
  scheduler, dedup_key, data = head[8], head[9], job_data
end
local function next_number()
  return call('INCR', KEYS[3])
end
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    return true
  end
  return false
end
local function load_duplicate_job()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
local function relink(id, job)
  if call('ZSCORE', KEYS[5], id) then
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
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
    return -7
  else
  end
  emit_capped(KEYS[6], cap, 'duplicated', 'jobId', id)
  return id .. ''
end
return answer_duplicate
end
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    id = sequence
    job = base .. id
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, cap)
    end
  end
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, KEYS[4], KEYS[6], cap)
  if owner then
    return id, job, owner
  end
  store_job(KEYS[6], job, id, name, data, born_at, options, parent, link, scheduler)
  return id, job, nil
end
local function finish_add(id, job)
  if pending ~= nil then
    call('SADD', pending, job)
  end
  return id .. '', true
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function add_delayed(packed_options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number()
  local cap = call('HGET', KEYS[2], 'opts.maxLenEvents') or store_default_cap(KEYS[2])
  local options = cmsgpack.unpack(packed_options)
  local id, job, reply = admit(sequence, options, cap)
  if reply then
    return reply
  end
  local score, due = delay_slot(KEYS[4], born_at, tonumber(options.delay or 0))
  call('ZADD', KEYS[4], score, id)
  emit_capped(KEYS[6], cap, 'delayed', 'jobId', id, 'delay', due)
  mark_delayed(KEYS[1], KEYS[4])
  return finish_add(id, job)
end
return open_job, add_delayed
end
local head = cmsgpack.unpack(ARGV[1])
local _, options = pcall(cmsgpack.unpack, ARGV[3])
if not is_plain_add(head, options, KEYS[3], KEYS[2]) then
  local open_job, add_delayed = load_add_delayed()
  open_job(head, ARGV[2])
  return add_delayed(ARGV[3])
end
local delayed, sequence = KEYS[4], call('INCR', KEYS[3])
local cap = call('HGET', KEYS[2], 'opts.maxLenEvents')
if not cap then
  cap = '10000'
  call('HSET', KEYS[2], 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV[2], sequence, KEYS[6])
local score, due = delay_slot(delayed, head[4], tonumber(options.delay or 0))
call('ZADD', delayed, score, id)
call('XADD', KEYS[6], 'MAXLEN', '~', cap, '*', 'event', 'delayed', 'jobId', id, 'delay', due)
mark_delayed(KEYS[1], delayed)
return id .. ''
""",
)

ADD_JOB_SCHEDULER = Script(
    name="addJobScheduler",
    sha1="78cfefa400622c1ad3719ba0bcdbc5702dcf4aac",
    keys=11,
    source="""\
local call = redis.call
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function next_slot(previous, every, now, offset, start)
  local slot = now
  if previous then
    slot = previous + every
    if slot < now then
      slot = math.floor(now / every) * every + every + offset
    else
    end
  elseif start and tonumber(start) > now then
    slot = tonumber(start)
  else
  end
  if offset == 0 then
    offset = slot - math.floor(slot / every) * every
  end
  return math.floor(slot), math.floor(offset)
end
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local function place_delayed(delayed, marker, events, cap, id, now, delay)
  local score, due = delay_slot(delayed, now, delay)
  call('ZADD', delayed, score, id)
  emit_capped(events, cap, 'delayed', 'jobId', id, 'delay', due)
  mark_delayed(marker, delayed)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = cjson.encode(options)
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function create_iteration(job, id, name, data, options, now, delay, scheduler, cap)
  local events = KEYS[9]
  options.delay = delay
  options.jobId = id
  store_job(events, job, id, name, data, now, options, nil, nil, scheduler)
  if delay ~= 0 then
    place_delayed(KEYS[2], KEYS[7], events, cap, id, now, delay)
    return
  end
  local target, held = queue_gate(KEYS[5], KEYS[11], KEYS[3], KEYS[4])
  local priority = options.priority or 0
  if priority ~= 0 then
    zadd_by_priority(KEYS[6], KEYS[10], priority, id)
  else
    if options.lifo then
      call('RPUSH', target, id)
    else
      call('LPUSH', target, id)
    end
  end
  mark_ready(KEYS[7], held)
  emit_capped(events, cap, 'waiting', 'jobId', id)
end
local schedulers, meta = KEYS[1], KEYS[5]
local scheduler, data, base, producer = ARGV[3], ARGV[4], ARGV[8], ARGV[9]
local record, id_stem = schedulers .. ':' .. scheduler, 'repeat:' .. scheduler .. ':'
local function is_taken(slot)
  return call('EXISTS', record .. ':' .. slot) == 1
end
local function take_back(id)
  for _, set in ipairs({ KEYS[2], KEYS[6] }) do
    if call('ZSCORE', set, id) then
      erase_job(base, id)
      call('ZREM', set, id)
      return true
    end
  end
  local list = KEYS[3]
  if call('HEXISTS', meta, 'paused') == 1 then
    list = KEYS[4]
  end
  if call('LREM', list, '1', id) == 1 then
    erase_job(base, id)
    return true
  end
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
local template, options = cmsgpack.unpack(ARGV[5]), cmsgpack.unpack(ARGV[6])
local cap = event_cap(meta)
local previous = tonumber(call('ZSCORE', schedulers, scheduler))
local schedule = cmsgpack.unpack(ARGV[2])
local now, every = tonumber(ARGV[7]), schedule.every
local fallback = (options['repeat'] or {}).offset
local slot, offset = ARGV[1], schedule.offset or fallback or 0
if every then
  slot, offset = next_slot(previous, every, now, offset, schedule.startDate)
else
end
if previous and is_taken(previous) and take_back(id_stem .. previous) then
  slot = previous
else
  schedule.offset = offset
end
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
write_record(slot, schedule, template)
call('INCR', KEYS[8])
create_iteration(record .. ':' .. slot, id, schedule.name, data, options, now, delay, scheduler, cap)
if producer ~= '' then
  call('HSET', producer, 'nrjid', id)
else
end
return { id, delay }
""",
)

ADD_LOG = Script(
    name="addLog",
    sha1="984b3f2f4b751a5fac8671bd0af57dd0df6a0b9c",
    keys=2,
    source="""\
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
local rows = call('RPUSH', KEYS[2], ARGV[2])
if ARGV[3] == '' then
  return rows
end
local keep = tonumber(ARGV[3])
call('LTRIM', KEYS[2], -keep, '-1')
return math.min(keep, rows)
""",
)

ADD_PARENT_JOB = Script(
    name="addParentJob",
    sha1="389d71c25d410e65f024af8371293c14fa39aa77",
    keys=6,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = cjson.encode(options)
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function load_deduplicate()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function deduplicate(rule, key, id, base, delayed, events, cap)
  local dedup_id = rule and rule.id
  if not dedup_id then
    return nil
  end
  local ttl = rule.ttl
  local timed = ttl and ttl > 0
  local function claim(owner)
    if timed then
      call('SET', key, owner, 'PX', ttl)
    else
      call('SET', key, owner)
    end
  end
  local function report(job_id, other_id)
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  local owner
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
    if timed and not rule.extend then
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    claim(owner)
  else
    local claimed
    if timed then
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      return nil
    end
    owner = call('GET', key)
  end
  report(owner, id)
  return owner
end
return deduplicate
end
local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data
local function open_job(head, job_data)
  base, custom_id, name, born_at = head[1], head[2], head[3], head[4]
  parent, pending, link = head[5], head[6], head[7]
  scheduler, dedup_key, data = head[8], head[9], job_data
end
local function next_number()
  return call('INCR', KEYS[2])
end
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    return true
  end
  return false
end
local function load_duplicate_job()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
local function relink(id, job)
  if call('ZSCORE', KEYS[5], id) then
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
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
    return -7
  else
  end
  emit_capped(KEYS[6], cap, 'duplicated', 'jobId', id)
  return id .. ''
end
return answer_duplicate
end
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    id = sequence
    job = base .. id
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, cap)
    end
  end
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, KEYS[3], KEYS[6], cap)
  if owner then
    return id, job, owner
  end
  store_job(KEYS[6], job, id, name, data, born_at, options, parent, link, scheduler)
  return id, job, nil
end
local function finish_add(id, job)
  if pending ~= nil then
    call('SADD', pending, job)
  end
  return id .. '', true
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
open_job(cmsgpack.unpack(ARGV[1]), ARGV[2])
local options = cmsgpack.unpack(ARGV[3])
if lacks_parent() then
  return -5
end
local sequence = next_number()
local cap = event_cap(KEYS[1])
local id, job, reply = admit(sequence, options, cap)
if reply then
  return reply
end
call('ZADD', KEYS[4], born_at, id)
emit_capped(KEYS[6], cap, 'waiting-children', 'jobId', id)
return finish_add(id, job)
""",
)

ADD_PRIORITIZED_JOB = Script(
    name="addPrioritizedJob",
    sha1="907e01f9185c7303d54ea9fbe400f5fafde2aca8",
    keys=9,
    source="""\
local call = redis.call
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
  end
  call('HMSET', job,
    'name', head[3], 'data', data, 'opts', cjson.encode(options), 'timestamp', head[4], 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  )
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', head[3])
  return id
end
local function load_add_prioritized()
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = cjson.encode(options)
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function load_deduplicate()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function deduplicate(rule, key, id, base, delayed, events, cap)
  local dedup_id = rule and rule.id
  if not dedup_id then
    return nil
  end
  local ttl = rule.ttl
  local timed = ttl and ttl > 0
  local function claim(owner)
    if timed then
      call('SET', key, owner, 'PX', ttl)
    else
      call('SET', key, owner)
    end
  end
  local function report(job_id, other_id)
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  local owner
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
    if timed and not rule.extend then
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    claim(owner)
  else
    local claimed
    if timed then
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      return nil
    end
    owner = call('GET', key)
  end
  report(owner, id)
  return owner
end
return deduplicate
end
local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data
local function open_job(head, job_data)
  base, custom_id, name, born_at = head[1], head[2], head[3], head[4]
  parent, pending, link = head[5], head[6], head[7]
  scheduler, dedup_key, data = head[8], head[9], job_data
end
local function next_number()
  return call('INCR', KEYS[3])
end
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    return true
  end
  return false
end
local function load_duplicate_job()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
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
local function relink(id, job)
  if call('ZSCORE', KEYS[6], id) then
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
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
    return -7
  else
  end
  emit_capped(KEYS[8], cap, 'duplicated', 'jobId', id)
  return id .. ''
end
return answer_duplicate
end
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    id = sequence
    job = base .. id
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, cap)
    end
  end
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, KEYS[5], KEYS[8], cap)
  if owner then
    return id, job, owner
  end
  store_job(KEYS[8], job, id, name, data, born_at, options, parent, link, scheduler)
  return id, job, nil
end
local function finish_add(id, job)
  if pending ~= nil then
    call('SADD', pending, job)
  end
  return id .. '', true
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function add_settings()
  local settings = call('HMGET', KEYS[2], 'opts.maxLenEvents', 'paused', 'concurrency')
  settings[1] = settings[1] or store_default_cap(KEYS[2])
  return settings
end
local function add_held(settings)
  return is_held(settings[2], settings[3], KEYS[7])
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
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
  zadd_by_priority(KEYS[4], KEYS[9], options.priority or 0, id)
  mark_ready(KEYS[1], held)
  emit_capped(KEYS[8], cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
return open_job, add_prioritized
end
local head, options = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[3])
if not is_plain_add(head, options, KEYS[3], KEYS[2]) then
  local open_job, add_prioritized = load_add_prioritized()
  open_job(head, ARGV[2])
  return add_prioritized(options)
end
local sequence = call('INCR', KEYS[3])
local settings = call('HMGET', KEYS[2], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap, held = settings[1], settings[2]
if not cap then
  cap = '10000'
  call('HSET', KEYS[2], 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV[2], sequence, KEYS[8])
if settings[3] and not held then
  held = call('LLEN', KEYS[7]) >= tonumber(settings[3])
end
zadd_by_priority(KEYS[4], KEYS[9], options.priority or 0, id)
if not held then
  call('ZADD', KEYS[1], '0', '0')
end
call('XADD', KEYS[8], 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
""",
)

ADD_REPEATABLE_JOB = Script(
    name="addRepeatableJob",
    sha1="bfbb615a65dd918adac005a3198c545072fab657",
    keys=2,
    source="""\
local call = redis.call
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
local members, delayed = KEYS[1], KEYS[2]
local slot, oldest, member, base = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
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
local schedule = cmsgpack.unpack(ARGV[2])
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
)

ADD_STANDARD_JOB = Script(
    name="addStandardJob",
    sha1="3a514963d11df131acae9678996aae8338fa7a3d",
    keys=9,
    source="""\
local call = redis.call
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
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
  end
  call('HMSET', job,
    'name', head[3], 'data', data, 'opts', cjson.encode(options), 'timestamp', head[4], 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  )
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', head[3])
  return id
end
local function load_add_standard()
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = cjson.encode(options)
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function load_deduplicate()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function deduplicate(rule, key, id, base, delayed, events, cap)
  local dedup_id = rule and rule.id
  if not dedup_id then
    return nil
  end
  local ttl = rule.ttl
  local timed = ttl and ttl > 0
  local function claim(owner)
    if timed then
      call('SET', key, owner, 'PX', ttl)
    else
      call('SET', key, owner)
    end
  end
  local function report(job_id, other_id)
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  local owner
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
    if timed and not rule.extend then
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    claim(owner)
  else
    local claimed
    if timed then
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      return nil
    end
    owner = call('GET', key)
  end
  report(owner, id)
  return owner
end
return deduplicate
end
local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data
local function open_job(head, job_data)
  base, custom_id, name, born_at = head[1], head[2], head[3], head[4]
  parent, pending, link = head[5], head[6], head[7]
  scheduler, dedup_key, data = head[8], head[9], job_data
end
local function next_number()
  return call('INCR', KEYS[4])
end
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    return true
  end
  return false
end
local function load_duplicate_job()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
local function relink(id, job)
  if call('ZSCORE', KEYS[5], id) then
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
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
    return -7
  else
  end
  emit_capped(KEYS[8], cap, 'duplicated', 'jobId', id)
  return id .. ''
end
return answer_duplicate
end
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    id = sequence
    job = base .. id
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, cap)
    end
  end
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, KEYS[6], KEYS[8], cap)
  if owner then
    return id, job, owner
  end
  store_job(KEYS[8], job, id, name, data, born_at, options, parent, link, scheduler)
  return id, job, nil
end
local function finish_add(id, job)
  if pending ~= nil then
    call('SADD', pending, job)
  end
  return id .. '', true
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function add_settings()
  local settings = call('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
  settings[1] = settings[1] or store_default_cap(KEYS[3])
  return settings
end
local function add_held(settings)
  return is_held(settings[2], settings[3], KEYS[7])
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
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
  local target, held = settings[2] and KEYS[2] or KEYS[1], add_held(settings)
  if options.lifo then
    call('RPUSH', target, id)
  else
    call('LPUSH', target, id)
  end
  mark_ready(KEYS[9], held)
  emit_capped(KEYS[8], cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
return open_job, add_standard
end
local head, options = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[3])
if not is_plain_add(head, options, KEYS[4], KEYS[3]) then
  local open_job, add_standard = load_add_standard()
  open_job(head, ARGV[2])
  return add_standard(options)
end
local sequence = call('INCR', KEYS[4])
local settings = call('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap, held = settings[1], settings[2]
if not cap then
  cap = '10000'
  call('HSET', KEYS[3], 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV[2], sequence, KEYS[8])
if settings[3] and not held then
  held = call('LLEN', KEYS[7]) >= tonumber(settings[3])
end
local target = settings[2] and KEYS[2] or KEYS[1]
if options.lifo then
  call('RPUSH', target, id)
else
  call('LPUSH', target, id)
end
if not held then
  call('ZADD', KEYS[9], '0', '0')
end
call('XADD', KEYS[8], 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
""",
)

CHANGE_DELAY = Script(
    name="changeDelay",
    sha1="9768d786af6bb9f9ef906dcc8522c33cff0025a7",
    keys=4,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local delayed, id, job, delay = KEYS[1], ARGV[3], ARGV[4], tonumber(ARGV[1])
if call('EXISTS', job) == 0 then
  return -1
end
local score, due = delay_slot(delayed, tonumber(ARGV[2]), delay)
if call('ZREM', delayed, id) == 0 then
  return -3
end
call('HSET', job, 'delay', delay)
call('ZADD', delayed, score, id)
emit_capped(KEYS[4], event_cap(KEYS[2]), 'delayed', 'jobId', id, 'delay', due)
mark_delayed(KEYS[3], delayed)
return 0
""",
)

CHANGE_PRIORITY = Script(
    name="changePriority",
    sha1="259d577e9224c63e46105024a0492a02fff7ccca",
    keys=7,
    source="""\
local call = redis.call
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local prioritized, id = KEYS[4], ARGV[3]
local job, priority, first = ARGV[2] .. id, tonumber(ARGV[1]), ARGV[4] == '1'
if call('EXISTS', job) == 0 then
  return -1
end
local target, held = queue_gate(KEYS[3], KEYS[5], KEYS[1], KEYS[2])
local waiting = true
if call('ZREM', prioritized, id) > 0 then
elseif call('LREM', target, '-1', id) > 0 then
else
  waiting = false
end
if waiting and priority ~= 0 and first then
  call('ZADD', prioritized, priority * PRIORITY_STEP, id)
elseif waiting then
  if priority ~= 0 then
    zadd_by_priority(prioritized, KEYS[6], priority, id)
  elseif first then
    call('RPUSH', target, id)
  else
    call('LPUSH', target, id)
  end
  mark_ready(KEYS[7], held)
end
call('HSET', job, 'priority', priority)
return 0
""",
)

CLEAN_JOBS_IN_SET = Script(
    name="cleanJobsInSet",
    sha1="2449824c6532d875724126b4c0abca3638d544f0",
    keys=3,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
local function each_batch(items, visit)
  for from = 1, #items, 7000 do
    visit(unpack(items, from, math.min(from + 6999, #items)))
  end
end
local function remove_members(set, ids)
  each_batch(ids, function(...)
    call('ZREM', set, ...)
  end)
end
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
local source, base, newest, limit, state = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
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
  return is_current_iteration(job, id, KEYS[3]) or is_recent(job, ...)
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
emit(KEYS[2], 'cleaned', 'count', #erased)
return erased
""",
)

DRAIN = Script(
    name="drain",
    sha1="e8062dd900c4bf641dbe37dc06a9ea309105418a",
    keys=5,
    source="""\
local call = redis.call
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
local function each_batch(items, visit)
  for from = 1, #items, 7000 do
    visit(unpack(items, from, math.min(from + 6999, #items)))
  end
end
local function remove_members(set, ids)
  each_batch(ids, function(...)
    call('ZREM', set, ...)
  end)
end
local current = {}
local schedulers = call('ZRANGE', KEYS[5], '0', '-1', 'WITHSCORES')
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
      erase_job(ARGV[1], id)
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
drain_list(KEYS[1])
drain_list(KEYS[2])
if ARGV[2] == '1' then
  drain_set(KEYS[3])
else
end
drain_set(KEYS[4])
""",
)

EXTEND_LOCK = Script(
    name="extendLock",
    sha1="3cb9e3109f0edd9add15a9f89c753465cc4efd4b",
    keys=2,
    source="""\
local call = redis.call
local function renew_lock(lock, token, duration, stalled, id)
  local owner = call('GET', lock)
  if not owner or owner ~= token then
    return false
  end
  call('SET', lock, token, 'PX', duration)
  call('SREM', stalled, id)
  return true
end
return renew_lock(KEYS[1], ARGV[1], ARGV[2], KEYS[2], ARGV[3]) and 1 or 0
""",
)

EXTEND_LOCKS = Script(
    name="extendLocks",
    sha1="71539c239794c3d082d6dc78052a0bac884f8d72",
    keys=1,
    source="""\
local call = redis.call
local base, duration = ARGV[1], ARGV[4]
local tokens, ids = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
local lost, renewed = {}, {}
local function leave_stalled()
  if renewed[1] then
    call('SREM', KEYS[1], unpack(renewed))
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
    if owner == token then
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
)

GET_COUNTS = Script(
    name="getCounts",
    sha1="b7512af8253bb33389711b973f8b44744ae67054",
    keys=1,
    source="""\
local call = redis.call
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
local function count_list(list)
  if drop_old_marker(list) then
    return 0
  end
  return call('LLEN', list)
end
local counts = {}
for index, state in ipairs(ARGV) do
  local key = KEYS[1] .. state
  if state == 'wait' or state == 'paused' then
    counts[index] = count_list(key)
  elseif state == 'active' then
    counts[index] = call('LLEN', key)
  else
    counts[index] = call('ZCARD', key)
  end
end
return counts
""",
)

GET_COUNTS_PER_PRIORITY = Script(
    name="getCountsPerPriority",
    sha1="afd8a4a6cf50dbff51a8f9ec5e8d0257e2e7f5be",
    keys=4,
    source="""\
local call = redis.call
local PRIORITY_STEP = 4294967296
local function count_unprioritized()
  if call('HEXISTS', KEYS[3], 'paused') == 1 then
    return call('LLEN', KEYS[2])
  end
  return call('LLEN', KEYS[1])
end
local counts = {}
for index, text in ipairs(ARGV) do
  local priority = tonumber(text)
  if priority == 0 then
    counts[index] = count_unprioritized()
  else
    local lowest = priority * PRIORITY_STEP
    counts[index] = call('ZCOUNT', KEYS[4], lowest, lowest + PRIORITY_STEP - 1)
  end
end
return counts
""",
)

GET_DEPENDENCY_COUNTS = Script(
    name="getDependencyCounts",
    sha1="cb95e1510aad12ba57c5b13dc6fc29ec3b89699a",
    keys=4,
    source="""\
local call = redis.call
local counts = {}
for index, name in ipairs(ARGV) do
  if name == 'processed' then
    counts[index] = call('HLEN', KEYS[1])
  elseif name == 'unprocessed' then
    counts[index] = call('SCARD', KEYS[2])
  elseif name == 'ignored' then
    counts[index] = call('HLEN', KEYS[3])
  else
    counts[index] = call('ZCARD', KEYS[4])
  end
end
return counts
""",
)

GET_JOB_SCHEDULER = Script(
    name="getJobScheduler",
    sha1="99cfc02675d0116910b358f571b0c0603ee15044",
    keys=1,
    source="""\
local call = redis.call
local slot = call('ZSCORE', KEYS[1], ARGV[1])
if not slot then
  return {}
end
return { call('HGETALL', KEYS[1] .. ':' .. ARGV[1]), slot }
""",
)

GET_METRICS = Script(
    name="getMetrics",
    sha1="5f91843e8bd765b60e576dfdd00ba5b14ff6bd3f",
    keys=2,
    source="""\
local call = redis.call
local totals = call('HMGET', KEYS[1], 'count', 'prevTS', 'prevCount')
local points = call('LRANGE', KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2]))
return { totals, points, call('LLEN', KEYS[2]) }
""",
)

GET_RANGES = Script(
    name="getRanges",
    sha1="52239098cd2dedb0613f4fd0a071b883e6c24cce",
    keys=1,
    source="""\
local call = redis.call
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
local first, last, ascending = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local function from_tail(position)
  if position == -1 then
    return 0
  end
  return -(position + 1)
end
local function list_range(list)
  if ascending then
    return call('LRANGE', list, from_tail(last), from_tail(first))
  end
  return call('LRANGE', list, first, last)
end
local function range_of(state)
  local key = KEYS[1] .. state
  if state == 'active' then
    return list_range(key)
  end
  if state == 'wait' or state == 'paused' then
    return drop_old_marker(key) and {} or list_range(key)
  end
  if ascending then
    return call('ZRANGE', key, first, last)
  end
  return call('ZREVRANGE', key, first, last)
end
local ranges = {}
for index = 4, #ARGV do
  ranges[index - 3] = range_of(ARGV[index])
end
return ranges
""",
)

GET_RATE_LIMIT_TTL = Script(
    name="getRateLimitTtl",
    sha1="18e9e7794a415bf0b5cb2964995aa0f12a29a716",
    keys=2,
    source="""\
local call = redis.call
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
local maximum = ARGV[1]
if maximum == '0' then
  maximum = call('HGET', KEYS[2], 'max')
  if not maximum then
    return call('PTTL', KEYS[1])
  end
else
end
return limited_for(KEYS[1], tonumber(maximum))
""",
)

GET_STATE = Script(
    name="getState",
    sha1="7ed7457739ede473349111f6e0d21932ebd11cbb",
    keys=8,
    source="""\
local call = redis.call
local function find_state(id, in_list)
  local state
  local function is_in(set)
    return not state and call('ZSCORE', set, id)
  end
  local function is_on(list)
    return not state and in_list(list, id)
  end
  if is_in(KEYS[1]) then
    state = 'completed'
  end
  if is_in(KEYS[2]) then
    state = 'failed'
  end
  if is_in(KEYS[3]) then
    state = 'delayed'
  end
  if is_in(KEYS[8]) then
    state = 'prioritized'
  end
  if is_on(KEYS[4]) then
    state = 'active'
  end
  if is_on(KEYS[5]) then
    state = 'waiting'
  end
  if is_on(KEYS[6]) then
    state = 'waiting'
  end
  if is_in(KEYS[7]) then
    state = 'waiting-children'
  end
  if not state then
    state = 'unknown'
  end
  return state
end
return find_state(ARGV[1], function(list, id)
  for _, other in ipairs(call('LRANGE', list, '0', '-1')) do
    if other == id then
      return true
    end
  end
  return false
end)
""",
)

GET_STATE_V2 = Script(
    name="getStateV2",
    sha1="6acd4981aba36b6866c376711b6bfa1a714179dc",
    keys=8,
    source="""\
local call = redis.call
local function find_state(id, in_list)
  local state
  local function is_in(set)
    return not state and call('ZSCORE', set, id)
  end
  local function is_on(list)
    return not state and in_list(list, id)
  end
  if is_in(KEYS[1]) then
    state = 'completed'
  end
  if is_in(KEYS[2]) then
    state = 'failed'
  end
  if is_in(KEYS[3]) then
    state = 'delayed'
  end
  if is_in(KEYS[8]) then
    state = 'prioritized'
  end
  if is_on(KEYS[4]) then
    state = 'active'
  end
  if is_on(KEYS[5]) then
    state = 'waiting'
  end
  if is_on(KEYS[6]) then
    state = 'waiting'
  end
  if is_in(KEYS[7]) then
    state = 'waiting-children'
  end
  if not state then
    state = 'unknown'
  end
  return state
end
return find_state(ARGV[1], function(list, id)
  return call('LPOS', list, id)
end)
""",
)

IS_FINISHED = Script(
    name="isFinished",
    sha1="29b6d72ee89a5df2b53e7500cc5e69031dab7171",
    keys=3,
    source="""\
local call = redis.call
local with_result = ARGV[2] == '1'
if call('EXISTS', KEYS[3]) == 0 then
  return with_result and { -1, 'Missing key for job ' .. KEYS[3] .. '. isFinished' } or -1
end
if call('ZSCORE', KEYS[1], ARGV[1]) then
  return with_result and { 1, call('HGET', KEYS[3], 'returnvalue') } or 1
end
if call('ZSCORE', KEYS[2], ARGV[1]) then
  return with_result and { 2, call('HGET', KEYS[3], 'failedReason') } or 2
end
return with_result and { 0 } or 0
""",
)

IS_JOB_IN_LIST = Script(
    name="isJobInList",
    sha1="c2e501c8f0e3fa8ea847921e4cc466555cfe2003",
    keys=1,
    source="""\
local call = redis.call
local ids = call('LRANGE', KEYS[1], '0', '-1')
for index = 1, #ids do
  if ids[index] == ARGV[1] then
    return 1
  end
end
return nil
""",
)

IS_MAXED = Script(
    name="isMaxed",
    sha1="74dad1d5a4752eb033ced73754837023db6bb3db",
    keys=2,
    source="""\
local call = redis.call
local concurrency = call('HGET', KEYS[1], 'concurrency')
if concurrency and call('LLEN', KEYS[2]) >= tonumber(concurrency) then
  return 1
end
return nil
""",
)

MOVE_JOB_FROM_ACTIVE_TO_WAIT = Script(
    name="moveJobFromActiveToWait",
    sha1="0e3f4102f8d7d535709cede593e59cca3bc1a05f",
    keys=9,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
  local owner = call('GET', lock)
  if owner == token then
    call('DEL', lock)
    call('SREM', stalled, id)
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
local active, meta, id, job = KEYS[1], KEYS[5], ARGV[1], ARGV[3]
if call('EXISTS', job) == 0 then
  return -1
end
local refusal = release_lock(job, KEYS[3], ARGV[2], id)
if refusal then
  return refusal
end
if call('LREM', active, '1', id) > 0 then
  local target, held = queue_gate(meta, active, KEYS[2], KEYS[4])
  local priority = priority_of(job)
  if priority > 0 then
    call('ZADD', KEYS[7], priority * PRIORITY_STEP, id)
  else
    call('RPUSH', target, id)
    mark_ready(KEYS[8], held)
  end
  emit_capped(KEYS[9], event_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
else
end
local remaining = call('PTTL', KEYS[6])
if remaining > 0 then
  return remaining
end
return 0
""",
)

MOVE_JOBS_TO_WAIT = Script(
    name="moveJobsToWait",
    sha1="43a3c810af1375fcae3f267fe14a1f5ed0859609",
    keys=8,
    source="""\
local call = redis.call
local function each_batch(items, visit)
  for from = 1, #items, 7000 do
    visit(unpack(items, from, math.min(from + 6999, #items)))
  end
end
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local source, size, state = KEYS[3], tonumber(ARGV[1]), ARGV[3]
local target, held = queue_gate(KEYS[6], KEYS[7], KEYS[4], KEYS[5])
local ids = call('ZRANGEBYSCORE', source, '0', tonumber(ARGV[2]), 'LIMIT', '0', size)
if ids[1] then
  local outcome
  if state == 'failed' then
    outcome = 'failedReason'
  elseif state == 'completed' then
    outcome = 'returnvalue'
  else
  end
  for index = 1, outcome and #ids or 0 do
    call('HDEL', KEYS[1] .. ids[index], 'finishedOn', 'processedOn', outcome)
  end
  local cap = event_cap(KEYS[6])
  for index = 1, #ids do
    emit_capped(KEYS[2], cap, 'waiting', 'jobId', ids[index], 'prev', state)
  end
  each_batch(ids, function(...)
    call('ZREM', source, ...)
    call('LPUSH', target, ...)
  end)
  mark_ready(KEYS[8], held)
else
end
if #ids >= size then
  return 1
end
return 0
""",
)

MOVE_STALLED_JOBS_TO_WAIT = Script(
    name="moveStalledJobsToWait",
    sha1="c38e7ec2e07a3f9cd4eb1701e67b679ff4b1a2c3",
    keys=8,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function trim_events(meta, events)
  call('XTRIM', events, 'MAXLEN', '~', event_cap(meta))
end
local limit, base = ARGV[1], ARGV[2]
local stalled, active, events = KEYS[1], KEYS[3], KEYS[8]
local recovered = {}
local function is_exempt(job)
  local text = call('HGET', job, 'opts')
  local rule = text and cjson.decode(text)['repeat']
  return rule ~= nil and rule ~= false
end
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
  local target, held = queue_gate(KEYS[5], active, KEYS[2], KEYS[6])
  call('RPUSH', target, id)
  mark_ready(KEYS[7], held)
  emit(events, 'waiting', 'jobId', id, 'prev', 'active')
  emit(events, 'stalled', 'jobId', id)
  recovered[#recovered + 1] = id
end
if call('EXISTS', KEYS[4]) == 1 then
  return recovered
end
call('SET', KEYS[4], ARGV[3], 'PX', ARGV[4])
trim_events(KEYS[5], events)
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
)

MOVE_TO_ACTIVE = Script(
    name="moveToActive",
    sha1="593cb11d749855c4b7ac738bbe7c3e9134ea757c",
    keys=11,
    source="""\
local call = redis.call
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
local function load_pop_next()
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local settings = nil
local function queue_settings(meta)
  if not settings then
    settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
  end
  return settings
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
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
local function load_promote_due()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local function promote_due(base, now, target, held)
  local due = call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  call('ZREM', KEYS[7], unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      call('LPUSH', target, id)
    else
      zadd_by_priority(KEYS[3], KEYS[10], priority, id)
    end
    emit(KEYS[4], 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(KEYS[11], held)
  return #due
end
return promote_due
end
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end
local function pop_prioritized()
  local id = call('ZPOPMIN', KEYS[3])[1]
  if id then
    call('LPUSH', KEYS[2], id)
    return id
  end
  call('DEL', KEYS[10])
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
local function activate(base, id, now, maximum, duration, options, token)
  local job = base .. id
  token = token or options.token
  if maximum and call('INCR', KEYS[6]) == 1 then
    call('PEXPIRE', KEYS[6], math.floor(math.abs(duration)))
  end
  if token ~= '0' then
    call('SET', job .. ':lock', token, 'PX', options.lockDuration)
  end
  call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  local fields = start_attempt(job, now, options.name)
  call('ZADD', KEYS[11], '0', '0')
  return { fields, id, 0, 0 }
end
local function fetch_next(base, now, options, token, take)
  local known = queue_settings(KEYS[9])
  local held = is_held(known[1], known[2], KEYS[2])
  local promoted = 0
  if call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
    local target = known[1] and KEYS[8] or KEYS[1]
    promoted = load_promote_due()(base, now, target, held)
  end
  local maximum = effective_maximum(known[3], options)
  local pause = limited_for(KEYS[6], maximum)
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
  local due = next_due(KEYS[7])
  if due then
    return { 0, 0, 0, due }
  end
  return nil
end
local function pop_next()
  local id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  if id and is_old_marker(id) then
    call('LREM', KEYS[2], '1', id)
    id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  end
  if id then
    return id
  end
  return pop_prioritized()
end
return fetch_next, pop_next
end
local options = cmsgpack.unpack(ARGV[3])
local open = false
if type(options) == 'table' and not options.limiter then
  local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max')
  open = not known.err and
    not (known[1] or known[2] or known[3])
end
if open then
  local due = redis.pcall('ZRANGEBYSCORE', KEYS[7], '0', (ARGV[2] + 1) * 4096 - 1, 'LIMIT', '0', '1')
  if not (due.err or due[1]) then
    local id = call('RPOPLPUSH', KEYS[1], KEYS[2])
    if id and string.sub(id, 1, 2) == '0:' then
      call('LREM', KEYS[2], '1', id)
      id = call('RPOPLPUSH', KEYS[1], KEYS[2])
    end
    if id then
      local job, token = ARGV[1] .. id, options.token
      if token ~= '0' then
        call('SET', job .. ':lock', token, 'PX', options.lockDuration)
      end
      call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
      local fields = start_attempt(job, ARGV[2], options.name)
      call('ZADD', KEYS[11], '0', '0')
      return { fields, id, 0, 0 }
    end
  end
end
local fetch_next, pop_next = load_pop_next()
return fetch_next(ARGV[1], ARGV[2], options, nil, pop_next) or { 0, 0, 0, 0 }
""",
)

MOVE_TO_DELAYED = Script(
    name="moveToDelayed",
    sha1="8ba80498d18c2eb66990514723f60ca8516d703c",
    keys=8,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
  local owner = call('GET', lock)
  if owner == token then
    call('DEL', lock)
    call('SREM', stalled, id)
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
local function write_fields(job, packed)
  local items = packed ~= '' and cmsgpack.unpack(packed)
  if items then
    call('HMSET', job, unpack(items))
  end
end
local delayed, job, id, delay = KEYS[4], KEYS[5], ARGV[3], ARGV[5]
if call('EXISTS', job) == 0 then
  return -1
end
local refusal = release_lock(job, KEYS[8], ARGV[4], id)
if refusal then
  return refusal
end
write_fields(job, ARGV[7])
if call('LREM', KEYS[2], '-1', id) == 0 then
  return -3
end
local score, due = delay_slot(delayed, tonumber(ARGV[2]), tonumber(delay))
if ARGV[6] == '0' then
  call('HINCRBY', job, 'atm', '1')
else
end
call('HSET', job, 'delay', delay)
local cap = event_cap(KEYS[7])
call('ZADD', delayed, score, id)
emit_capped(KEYS[6], cap, 'delayed', 'jobId', id, 'delay', due)
mark_delayed(KEYS[1], delayed)
return 0
""",
)

MOVE_TO_FINISHED = Script(
    name="moveToFinished",
    sha1="ce0e7ee14c34c5870de200bc971d327598d630e9",
    keys=14,
    source="""\
local call = redis.call
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
local function is_plain_ms(number)
  return type(number) == 'number' and number >= 1 and number < 100000000000000 and number % 1 == 0
end
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
local function load_finish_job()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
  local owner = call('GET', lock)
  if owner == token then
    call('DEL', lock)
    call('SREM', stalled, id)
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
local function write_fields(job, packed)
  local items = packed ~= '' and cmsgpack.unpack(packed)
  if items then
    call('HMSET', job, unpack(items))
  end
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local settings = nil
local function queue_settings(meta)
  if not settings then
    settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
  end
  return settings
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
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
local function load_promote_due()
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local function promote_due(base, now, target, held)
  local due = call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  call('ZREM', KEYS[7], unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      call('LPUSH', target, id)
    else
      zadd_by_priority(KEYS[3], KEYS[10], priority, id)
    end
    emit(KEYS[4], 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(KEYS[14], held)
  return #due
end
return promote_due
end
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end
local function pop_prioritized()
  local id = call('ZPOPMIN', KEYS[3])[1]
  if id then
    call('LPUSH', KEYS[2], id)
    return id
  end
  call('DEL', KEYS[10])
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
local function activate(base, id, now, maximum, duration, options, token)
  local job = base .. id
  token = token or options.token
  if maximum and call('INCR', KEYS[6]) == 1 then
    call('PEXPIRE', KEYS[6], math.floor(math.abs(duration)))
  end
  if token ~= '0' then
    call('SET', job .. ':lock', token, 'PX', options.lockDuration)
  end
  call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  local fields = start_attempt(job, now, options.name)
  call('ZADD', KEYS[14], '0', '0')
  return { fields, id, 0, 0 }
end
local function fetch_next(base, now, options, token, take)
  local known = queue_settings(KEYS[9])
  local held = is_held(known[1], known[2], KEYS[2])
  local promoted = 0
  if call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
    local target = known[1] and KEYS[8] or KEYS[1]
    promoted = load_promote_due()(base, now, target, held)
  end
  local maximum = effective_maximum(known[3], options)
  local pause = limited_for(KEYS[6], maximum)
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
  local due = next_due(KEYS[7])
  if due then
    return { 0, 0, 0, due }
  end
  return nil
end
local function load_child_outcome()
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
return child_completed, child_failed
end
local function load_unlink_child()
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
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
return unlink_given
end
local function load_retention()
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
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
local function forget(base, ids)
  for index = 1, #ids do
    local job = base .. ids[index]
    unlink_looked_up(job)
    purge(job)
  end
end
local function keep_by_age(base, finished, now, age)
  local oldest = now - age * 1000
  forget(base, call('ZREVRANGEBYSCORE', finished, oldest, '-inf'))
  call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
end
local function keep_by_count(base, finished, count)
  forget(base, call('ZREVRANGE', finished, count, '-1'))
  call('ZREMRANGEBYRANK', finished, '0', -(count + 1))
end
return keep_by_age, keep_by_count
end
local function load_metrics()
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
return record_metric
end
local function pop_after_finish()
  local next_id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not next_id then
    return pop_prioritized()
  end
  if not is_old_marker(next_id) then
    return next_id
  end
  call('LREM', KEYS[2], '1', next_id)
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
  local known = queue_settings(KEYS[9])
  local cap = known[5]
  if not cap then
    cap = store_default_cap(KEYS[9])
    known[5] = cap
  end
  call('XTRIM', events, 'MAXLEN', '~', cap)
end
local function finish_job(base, id, job, now, field, result, outcome, finished, metrics, token, options, packed_fields,
  fetch)
  local active, events = KEYS[2], KEYS[4]
  local has_failed = outcome == 'failed'
  local stored = redis.pcall('HMGET',
    job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
  )
  if not stored[1] and call('EXISTS', job) == 0 then
    return -1
  end
  local may_wait_for_children = outcome == 'completed'
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
  if not options then
    options = cmsgpack.unpack(ARGV[8])
    token = options.token
  end
  local refusal = release_lock(job, KEYS[5], token, id)
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
  local may_wait = false
  if call('LREM', active, '-1', id) == 0 then
    return -3
  end
  trim_own(events, may_wait)
  if stored[4] then
    release_own_dedup(base, id, stored[4])
  end
  if parent_id == '' and has_parent then
    local parent_base
    parent_base, parent_id = split_job_key(parent)
    parent_queue = string.sub(parent_base, 1, -2)
  end
  if parent_id == '' then
  else
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
    if type(redis.pcall('ZADD', finished, now, id)) == 'table' then
      call('HSET', job, 'atm', attempts_text)
      call('ZADD', finished, now, id)
    end
    call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
    if (has_failed and (stored[6] or parent_id ~= '')) then
      call('HDEL', job, 'defa')
    end
    if keep_age ~= nil then
      load_retention()(base, finished, now, keep_age)
    end
    if keep_count ~= nil and keep_count > 0 then
      local _, keep_by_count = load_retention()
      keep_by_count(base, finished, keep_count)
    end
  end
  call('XADD', events,
    '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
  )
  if has_failed and attempts_made >= tonumber(options.attempts) then
    call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_text)
  end
  if options.maxMetricsSize ~= '' then
    load_metrics()(metrics, options.maxMetricsSize, now)
  end
  if fetch then
    local reply = fetch_next(base, now, options, token, pop_after_finish)
    if reply then
      return reply
    end
  end
  if call('LLEN', KEYS[1]) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS[3]) == 0 then
    emit(events, 'drained')
  else
  end
  return 0
end
return finish_job
end
local function load_retention()
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
local function forget(base, ids)
  for index = 1, #ids do
    local job = base .. ids[index]
    unlink_looked_up(job)
    purge(job)
  end
end
local function keep_by_age(base, finished, now, age)
  local oldest = now - age * 1000
  forget(base, call('ZREVRANGEBYSCORE', finished, oldest, '-inf'))
  call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
end
local function keep_by_count(base, finished, count)
  forget(base, call('ZREVRANGE', finished, count, '-1'))
  call('ZREMRANGEBYRANK', finished, '0', -(count + 1))
end
return keep_by_age, keep_by_count
end
local job, id, now, events = KEYS[12], ARGV[1], ARGV[2], KEYS[4]
local lock = job .. ':lock'
local readable, options = pcall(cmsgpack.unpack, ARGV[8])
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
    local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
    cap = known[4]
    attempts, attempts_text = plain_count(stored[5])
    plain = attempts and cap and (cap == '10000' or plain_count(cap))
      and (ARGV[9] == '' or failure_fields(ARGV[9])) and
      not (known[1] or known[2] or known[3])
  end
end
if plain then
  local children, unsuccessful, delayed = job .. ':dependencies', job .. ':unsuccessful', KEYS[7]
  if call('EXISTS', delayed, children, unsuccessful) ~= 0 then
    local due = tonumber(now) and redis.pcall('ZRANGEBYSCORE', delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
    may_delay = true
    plain = due and not due.err and not due[1]
      and (ARGV[5] ~= 'completed' or call('EXISTS', children, unsuccessful) == 0)
  end
end
if not plain then
  return load_finish_job()(ARGV[7], id, job, now, ARGV[3], ARGV[4], ARGV[5], KEYS[11], KEYS[13],
    readable and token, readable and options, ARGV[9], ARGV[6] == '1')
end
local active, field, result, outcome = KEYS[2], ARGV[3], ARGV[4], ARGV[5]
call('DEL', lock)
call('SREM', KEYS[5], id)
if ARGV[9] ~= '' then
  call('HMSET', job, unpack(cmsgpack.unpack(ARGV[9])))
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
  local finished = KEYS[11]
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
      keep_by_age(ARGV[7], finished, now, keep.age)
    end
    if keep.count ~= nil and keep.count > 0 then
      keep_by_count(ARGV[7], finished, keep.count)
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
if ARGV[6] == '1' then
  local next_id = call('RPOPLPUSH', KEYS[1], active)
  local old = next_id and string.sub(next_id, 1, 2) == '0:' and next_id
  if old then
    call('LREM', active, '1', old)
    next_id = nil
  end
  if not next_id and (not old or old == '0:0') then
    next_id = call('ZPOPMIN', KEYS[3])[1]
    if next_id then
      call('LPUSH', active, next_id)
    else
      call('DEL', KEYS[10])
      assert(not old, 'no prioritized job after the marker 0:0')
    end
  end
  if next_id then
    local next_job = ARGV[7] .. next_id
    call('SET', next_job .. ':lock', token, 'PX', (options.lockDuration .. ''))
    call('XADD', events, '*', 'event', 'active', 'jobId', next_id, 'prev', 'waiting')
    local fields = start_attempt(next_job, now, options.name)
    call('ZADD', KEYS[14], '0', '0')
    return { fields, next_id, 0, 0 }
  end
  local score = may_delay and call('ZRANGE', KEYS[7], '0', '0', 'WITHSCORES')[2]
  if score then
    return { 0, 0, 0, score / 4096 }
  end
end
if call('LLEN', KEYS[1]) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS[3]) == 0 then
  call('XADD', events, '*', 'event', 'drained')
end
return 0
""",
)

MOVE_TO_WAITING_CHILDREN = Script(
    name="moveToWaitingChildren",
    sha1="34ad409fcbe47e0a3772d30ec9d6d4a278526bde",
    keys=7,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
  local owner = call('GET', lock)
  if owner == token then
    call('DEL', lock)
    call('SREM', stalled, id)
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
local job, pending, child, id = KEYS[3], KEYS[4], ARGV[2], ARGV[4]
if call('EXISTS', job) == 0 then
  return -1
end
if call('ZCARD', KEYS[5]) > 0 then
  return -9
end
local open
if child == '' then
  open = call('SCARD', pending)
else
  open = call('SISMEMBER', pending, child)
end
if open == 0 then
  return 1
end
local refusal = release_lock(job, KEYS[6], ARGV[1], id)
if refusal then
  return refusal
end
if call('LREM', KEYS[1], '-1', id) == 0 then
  return -3
end
call('ZADD', KEYS[2], tonumber(ARGV[3]), id)
emit(KEYS[7], 'waiting-children', 'jobId', id, 'prev', 'active')
return 0
""",
)

OBLITERATE = Script(
    name="obliterate",
    sha1="b4acb19a679e74ca192267c0244d254cc445ff3f",
    keys=2,
    source="""\
local call = redis.call
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
local function each_batch(items, visit)
  for from = 1, #items, 7000 do
    visit(unpack(items, from, math.min(from + 6999, #items)))
  end
end
local function remove_members(set, ids)
  each_batch(ids, function(...)
    call('ZREM', set, ...)
  end)
end
local base = KEYS[2]
local budget = tonumber(ARGV[1])
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
if call('HEXISTS', KEYS[1], 'paused') == 0 then
  return -1
end
local active = base .. 'active'
local running = call('LRANGE', active, '0', budget - 1)
if running[1] and ARGV[2] == '' then
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
  base .. 'meta', base .. 'metrics:completed', base .. 'metrics:completed:data', base .. 'metrics:failed',
  base .. 'metrics:failed:data')
return 0
""",
)

PAGINATE = Script(
    name="paginate",
    sha1="5e3624faaec475ea36664e40e8d9ea407560bc07",
    keys=1,
    source="""\
local call = redis.call
local key, first, last, cursor = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local at, most, with_hashes = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] ~= nil
local kind, scan, total, width = call('TYPE', key).ok, nil, nil, nil
if kind == 'none' then
  return { 0, 0, {}, 0 }
elseif kind == 'set' then
  scan, total, width = 'SSCAN', call('SCARD', key), 1
elseif kind == 'hash' then
  scan, total, width = 'HSCAN', call('HLEN', key), 2
else
  return redis.error_reply('Pagination is only supported for sets and hashes.')
end
if last == -1 then
  last = total
end
local stop = first + (last - first + 1)
local page, hashes = {}, {}
local function take(found, index)
  local name = found[index]
  page[#page + 1] = width == 1 and name or { name, found[index + 1] }
  if with_hashes then
    hashes[#hashes + 1] = call('HGETALL', name)
  end
end
local function walk(found)
  local count = #found / width
  if count > 0 and at + count < first then
    at = at + count
    return true
  end
  if count == 0 or at > stop then
    return false
  end
  for index = 1, #found, width do
    if at >= stop then
      return false
    end
    if at >= first then
      take(found, index)
    end
    at = at + 1
  end
  return true
end
local scans = 0
repeat
  local reply = call(scan, key, cursor, 'COUNT', '100')
  cursor = reply[1]
  scans = scans + 1
until not walk(reply[2]) or cursor == '0' or scans >= most
return { cursor, at, page, total, hashes }
""",
)

PAUSE = Script(
    name="pause",
    sha1="e0663bad5ed53bab6ee49d9bd4548109b6a9d122",
    keys=7,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local meta, marker, change = KEYS[3], KEYS[7], ARGV[1]
local moved = call('EXISTS', KEYS[1]) == 1
if moved then
  call('RENAME', KEYS[1], KEYS[2])
else
end
if change == 'paused' then
  call('HSET', meta, 'paused', '1')
  call('DEL', marker)
else
  call('HDEL', meta, 'paused')
  if moved or call('ZCARD', KEYS[4]) > 0 then
    call('ZADD', marker, '0', '0')
  else
    mark_delayed(marker, KEYS[6])
  end
end
emit(KEYS[5], change)
""",
)

PROMOTE = Script(
    name="promote",
    sha1="31d6f15d601909dfbd62ca9e8b6d7ce88ed137a4",
    keys=9,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local id = ARGV[2]
local job = ARGV[1] .. id
if call('ZREM', KEYS[1], id) == 0 then
  return -3
end
local priority = priority_of(job)
local target, held = queue_gate(KEYS[4], KEYS[6], KEYS[2], KEYS[3])
local head = call('LINDEX', target, '0')
if head and string.sub(head, 1, 2) == '0:' then
  call('LPOP', target)
end
if priority == 0 then
  call('LPUSH', target, id)
else
  zadd_by_priority(KEYS[5], KEYS[7], priority, id)
end
mark_ready(KEYS[9], held)
emit(KEYS[8], 'waiting', 'jobId', id, 'prev', 'delayed')
call('HSET', job, 'delay', '0')
return 0
""",
)

RELEASE_LOCK = Script(
    name="releaseLock",
    sha1="bc6bc210fddbd2179ec6abfc9236da2516ac3f7a",
    keys=1,
    source="""\
local call = redis.call
if call('GET', KEYS[1]) == ARGV[1] then
  return call('DEL', KEYS[1])
end
return 0
""",
)

REMOVE_CHILD_DEPENDENCY = Script(
    name="removeChildDependency",
    sha1="2937b55506470faf353025ca498f7d0c65d19bcf",
    keys=1,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
local child, parent = ARGV[1], ARGV[2]
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
)

REMOVE_JOB = Script(
    name="removeJob",
    sha1="10bcaf2a573784eaa3b36703b8ac0e5086eaf1fd",
    keys=2,
    source="""\
local call = redis.call
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
local with_children = ARGV[2] == '1'
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
if is_current_iteration(KEYS[1], ARGV[1], KEYS[2]) then
  return -8
end
if has_lock(ARGV[3], ARGV[1]) then
  return 0
end
remove_tree(ARGV[3], ARGV[1], with_children)
return 1
""",
)

REMOVE_JOB_SCHEDULER = Script(
    name="removeJobScheduler",
    sha1="af471bdee6f09f2b6ee58b596b6980d268b998f5",
    keys=3,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function drop_delayed(delayed, events, base, id)
  if call('ZREM', delayed, id) == 0 then
    return
  end
  purge(base .. id)
  emit(events, 'removed', 'jobId', id, 'prev', 'delayed')
end
local schedulers, scheduler = KEYS[1], ARGV[1]
local slot = call('ZSCORE', schedulers, scheduler)
if slot then
  drop_delayed(KEYS[2], KEYS[3], ARGV[2], 'repeat:' .. scheduler .. ':' .. slot)
end
if call('ZREM', schedulers, scheduler) == 0 then
  return 1
end
call('DEL', schedulers .. ':' .. scheduler)
return 0
""",
)

REMOVE_REPEATABLE = Script(
    name="removeRepeatable",
    sha1="caa793f7e0760ca620fb75a0bd5d358e9563e5e4",
    keys=3,
    source="""\
local call = redis.call
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function drop_delayed(delayed, events, base, id)
  if call('ZREM', delayed, id) == 0 then
    return
  end
  purge(base .. id)
  emit(events, 'removed', 'jobId', id, 'prev', 'delayed')
end
local function remove_member(member, id_stem)
  local slot = call('ZSCORE', KEYS[1], member)
  if not slot then
    return false
  end
  drop_delayed(KEYS[2], KEYS[3], ARGV[4], id_stem .. slot)
  return call('ZREM', KEYS[1], member) == 1
end
local member = ARGV[3]
if remove_member(ARGV[2], ARGV[1]) then
  return 0
end
if remove_member(member, 'repeat:' .. member .. ':') then
  call('DEL', KEYS[1] .. ':' .. member)
  return 0
end
return 1
""",
)

REMOVE_UNPROCESSED_CHILDREN = Script(
    name="removeUnprocessedChildren",
    sha1="ebe1d7c0da32d986f08de78f099896aa13e04b78",
    keys=2,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
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
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
local function release_dedup(base, job, id)
  local dedup_id = call('HGET', job, 'deid')
  if not dedup_id then
    return
  end
  local key = base .. 'de:' .. dedup_id
  if call('GET', key) == id then
    call('DEL', key)
  else
  end
end
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
remove_children(KEYS[1], 'unprocessed')
""",
)

REPROCESS_JOB = Script(
    name="reprocessJob",
    sha1="26c708bec453bcc837d3d8af893874f379255d55",
    keys=8,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local job, meta, id, state = KEYS[1], KEYS[5], ARGV[1], ARGV[4]
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
if call('EXISTS', job) == 0 then
  return -1
end
if call('ZREM', KEYS[3], id) == 0 then
  return -3
end
call('HDEL', job, 'finishedOn', 'processedOn', ARGV[3])
local target, held = queue_gate(meta, KEYS[7], KEYS[4], KEYS[6])
call(ARGV[2], target, id)
mark_ready(KEYS[8], held)
local parent = call('HGET', job, 'parentKey')
if parent and call('EXISTS', parent) == 1 then
  if forget_outcome(parent) > 0 then
    call('SADD', parent .. ':dependencies', job)
  else
  end
else
end
emit_capped(KEYS[2], event_cap(meta), 'waiting', 'jobId', id, 'prev', state)
return 1
""",
)

RETRY_JOB = Script(
    name="retryJob",
    sha1="263980b60a44ef292526a8785bd19d3cd51034b9",
    keys=11,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local settings = nil
local function queue_settings(meta)
  if not settings then
    settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
  end
  return settings
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
  local owner = call('GET', lock)
  if owner == token then
    call('DEL', lock)
    call('SREM', stalled, id)
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
local function write_fields(job, packed)
  local items = packed ~= '' and cmsgpack.unpack(packed)
  if items then
    call('HMSET', job, unpack(items))
  end
end
local function load_promote_due()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function promote_due(base, now, target, held)
  local due = call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  call('ZREM', KEYS[7], unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      call('LPUSH', target, id)
    else
      zadd_by_priority(KEYS[8], KEYS[9], priority, id)
    end
    emit(KEYS[6], 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(KEYS[10], held)
  return #due
end
return promote_due
end
local active, job, meta, events, marker, id = KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[10], ARGV[4]
local known = queue_settings(meta)
local target = known[1] and KEYS[3] or KEYS[2]
local held = is_held(known[1], known[2], active)
local now = tonumber(ARGV[2])
if call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
  load_promote_due()(ARGV[1], now, target, held)
end
if call('EXISTS', job) == 0 then
  return -1
end
local refusal = release_lock(job, KEYS[11], ARGV[5], id)
if refusal then
  return refusal
end
write_fields(job, ARGV[6])
if call('LREM', active, '-1', id) == 0 then
  return -3
end
local priority = priority_of(job)
held = is_held(known[1], known[2], active)
if priority == 0 then
  call(ARGV[3], target, id)
else
  zadd_by_priority(KEYS[8], KEYS[9], priority, id)
end
mark_ready(marker, held)
call('HINCRBY', job, 'atm', '1')
emit_capped(events, known[5] or store_default_cap(meta), 'waiting', 'jobId', id, 'prev', 'active')
return 0
""",
)

SAVE_STACKTRACE = Script(
    name="saveStacktrace",
    sha1="50169df6385a2935ac18109fffbc669f34bf9413",
    keys=1,
    source="""\
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
call('HMSET', KEYS[1], 'stacktrace', ARGV[1], 'failedReason', ARGV[2])
return 0
""",
)

UPDATE_DATA = Script(
    name="updateData",
    sha1="3b3bf47af51579b445650052338d94f74528aece",
    keys=1,
    source="""\
local call = redis.call
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
call('HSET', KEYS[1], 'data', ARGV[1])
return 0
""",
)

UPDATE_JOB_SCHEDULER = Script(
    name="updateJobScheduler",
    sha1="b1bce33f22ee293406a5b9edb0ea88167e8da4d1",
    keys=12,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
local function next_slot(previous, every, now, offset, start)
  local slot = now
  if previous then
    slot = previous + every
    if slot < now then
      slot = math.floor(now / every) * every + every + offset
    else
    end
  elseif start and tonumber(start) > now then
    slot = tonumber(start)
  else
  end
  if offset == 0 then
    offset = slot - math.floor(slot / every) * every
  end
  return math.floor(slot), math.floor(offset)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local function place_delayed(delayed, marker, events, cap, id, now, delay)
  local score, due = delay_slot(delayed, now, delay)
  call('ZADD', delayed, score, id)
  emit_capped(events, cap, 'delayed', 'jobId', id, 'delay', due)
  mark_delayed(marker, delayed)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = cjson.encode(options)
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function create_iteration(job, id, name, data, options, now, delay, scheduler, cap)
  local events = KEYS[9]
  options.delay = delay
  options.jobId = id
  store_job(events, job, id, name, data, now, options, nil, nil, scheduler)
  if delay ~= 0 then
    place_delayed(KEYS[2], KEYS[7], events, cap, id, now, delay)
    return
  end
  local target, held = queue_gate(KEYS[5], KEYS[12], KEYS[3], KEYS[4])
  local priority = options.priority or 0
  if priority ~= 0 then
    zadd_by_priority(KEYS[6], KEYS[10], priority, id)
  else
    if options.lifo then
      call('RPUSH', target, id)
    else
      call('LPUSH', target, id)
    end
  end
  mark_ready(KEYS[7], held)
  emit_capped(events, cap, 'waiting', 'jobId', id)
end
local schedulers, producer, scheduler, timestamp = KEYS[1], KEYS[11], ARGV[2], ARGV[5]
local options = cmsgpack.unpack(ARGV[4])
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
  slot = tonumber(ARGV[1])
end
local id_stem = 'repeat:' .. scheduler .. ':'
local id = id_stem .. slot
if ARGV[7] ~= id_stem .. previous then
  return nil
end
local cap = event_cap(KEYS[5])
local job = record .. ':' .. slot
if call('EXISTS', job) == 1 then
  emit_capped(KEYS[9], cap, 'duplicated', 'jobId', id)
  return nil
end
call('ZADD', schedulers, slot, scheduler)
call('HINCRBY', record, 'ic', '1')
call('INCR', KEYS[8])
local data = template[2] or ARGV[3]
if data ~= '{}' then
  call('HSET', record, 'data', data)
else
end
local delay = math.max(slot - now, 0)
create_iteration(job, id, template[1], data, options, timestamp, delay, scheduler, cap)
if producer ~= '' then
  call('HSET', producer, 'nrjid', id)
else
end
return id
""",
)

UPDATE_PROGRESS = Script(
    name="updateProgress",
    sha1="7ec04287871eab0d1cebf9f699cf370845843ec1",
    keys=3,
    source="""\
local call = redis.call
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local function event_cap(meta)
  local stored = call('HGET', meta, 'opts.maxLenEvents')
  if stored then
    return stored
  end
  return store_default_cap(meta)
end
if call('EXISTS', KEYS[1]) == 0 then
  return -1
end
local cap = event_cap(KEYS[3])
call('HSET', KEYS[1], 'progress', ARGV[2])
emit_capped(KEYS[2], cap, 'progress', 'jobId', ARGV[1], 'data', ARGV[2])
return 0
""",
)

UPDATE_REPEATABLE_JOB_MILLIS = Script(
    name="updateRepeatableJobMillis",
    sha1="b79b6b699827e9ae50d50201c7eacba789d45249",
    keys=1,
    source="""\
local call = redis.call
for index = 2, 3 do
  if call('ZSCORE', KEYS[1], ARGV[index]) then
    call('ZADD', KEYS[1], ARGV[1], ARGV[index])
    return ARGV[index]
  end
end
return ''
""",
)

ADD_MANY = Script(
    name="addMany",
    sha1="437406379aef4c2d25d6fecd56182cb696512337",
    keys=12,
    source="""\
local call = redis.call
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
local function alone_or_error(job_function, ...)
  local passed, reply = pcall(job_function, ...)
  if passed then
    return reply
  end
  local text = type(reply) == 'table' and reply.err or tostring(reply)
  return { string.match(text, ': %-(%u+ .*)$') or text }
end
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
local function is_plain_ms(number)
  return type(number) == 'number' and number >= 1 and number < 100000000000000 and number % 1 == 0
end
local PRIORITY_STEP = 4294967296
local function load_add_rest()
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
  local text = encoded and encoded[options]
  if not text then
    text = cjson.encode(options)
    if encoded then
      encoded[options] = text
    end
  end
  local fields = {
    'name', name, 'data', data, 'opts', text, 'timestamp', born_at, 'delay', (options.delay or '0'), 'priority', (options.priority or '0')
  }
  local count = 12
  if parent ~= nil then
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
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
local function load_deduplicate()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function deduplicate(rule, key, id, base, delayed, events, cap)
  local dedup_id = rule and rule.id
  if not dedup_id then
    return nil
  end
  local ttl = rule.ttl
  local timed = ttl and ttl > 0
  local function claim(owner)
    if timed then
      call('SET', key, owner, 'PX', ttl)
    else
      call('SET', key, owner)
    end
  end
  local function report(job_id, other_id)
    emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
    emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
      other_id)
  end
  local owner
  if rule.replace then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    if call('ZREM', delayed, owner) == 0 then
      return owner
    end
    purge(base .. owner)
    emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
    report(id, owner)
    if timed and not rule.extend then
      call('SET', key, id, 'KEEPTTL')
    else
      claim(id)
    end
    return nil
  end
  if timed and rule.extend then
    owner = call('GET', key)
    if not owner then
      claim(id)
      return nil
    end
    claim(owner)
  else
    local claimed
    if timed then
      claimed = call('SET', key, id, 'PX', ttl, 'NX')
    else
      claimed = call('SET', key, id, 'NX')
    end
    if claimed then
      return nil
    end
    owner = call('GET', key)
  end
  report(owner, id)
  return owner
end
return deduplicate
end
local batch = nil
local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data
local function open_job(head, job_data)
  base, custom_id, name, born_at = head[1], head[2], head[3], head[4]
  parent, pending, link = head[5], head[6], head[7]
  scheduler, dedup_key, data = head[8], head[9], job_data
end
local function next_number()
  if batch then
    if batch.reserved == 0 then
      local last = batch.run > 1 and count_together(KEYS[4], batch.run)
      if not last then
        return call('INCR', KEYS[4])
      end
      batch.reserved, batch.last = batch.run, last
    end
    batch.reserved = batch.reserved - 1
    return batch.last - batch.reserved
  end
  return call('INCR', KEYS[4])
end
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    return true
  end
  return false
end
local function load_duplicate_job()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
local function relink(id, job)
  if call('ZSCORE', KEYS[5], id) then
    local queue, parent_id = link.queueKey, link.id
    call('HSET', parent .. ':processed', job, call('HGET', job, 'returnvalue'))
    if call('SCARD', pending) == 0 then
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
    return -7
  else
  end
  emit_capped(KEYS[8], cap, 'duplicated', 'jobId', id)
  return id .. ''
end
return answer_duplicate
end
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    id = sequence
    job = base .. id
    if math.abs(id) < 100000000000000 then
      id = id .. ''
    end
  else
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, cap)
    end
  end
  if batch and options.de then
    batch.flush()
  end
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, KEYS[6], KEYS[8], cap)
  if owner then
    return id, job, owner
  end
  store_job(KEYS[8], job, id, name, data, born_at, options, parent, link, scheduler, batch and batch.encoded)
  return id, job, nil
end
local function finish_add(id, job)
  if pending ~= nil then
    call('SADD', pending, job)
  end
  return id .. '', true
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
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
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local function add_delayed(packed_options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number()
  local settings = batch and batch.settings
  local cap = settings and settings[1]
  if not cap then
    cap = call('HGET', KEYS[3], 'opts.maxLenEvents') or store_default_cap(KEYS[3])
  end
  local options = batch and batch.options[packed_options] or cmsgpack.unpack(packed_options)
  local id, job, reply = admit(sequence, options, cap)
  if reply then
    return reply
  end
  local score, due = delay_slot(KEYS[6], born_at, tonumber(options.delay or 0))
  call('ZADD', KEYS[6], score, id)
  emit_capped(KEYS[8], cap, 'delayed', 'jobId', id, 'delay', due)
  if batch then
    batch.has_delayed = true
  else
    mark_delayed(KEYS[9], KEYS[6])
  end
  return finish_add(id, job)
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function add_settings()
  if batch and batch.settings then
    return batch.settings
  end
  local settings = call('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
  settings[1] = settings[1] or store_default_cap(KEYS[3])
  if batch then
    batch.settings = settings
  end
  return settings
end
local function add_held(settings)
  if batch then
    if batch.held == nil then
      batch.held = is_held(settings[2], settings[3], KEYS[7])
    end
    return batch.held
  end
  return is_held(settings[2], settings[3], KEYS[7])
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
  zadd_by_priority(KEYS[10], KEYS[11], options.priority or 0, id)
  if batch then
    batch.ready = batch.ready or not held
  else
    mark_ready(KEYS[9], held)
  end
  emit_capped(KEYS[8], cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
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
  local target, held = settings[2] and KEYS[2] or KEYS[1], add_held(settings)
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
    mark_ready(KEYS[9], held)
  end
  emit_capped(KEYS[8], cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
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
      mark_delayed(KEYS[9], KEYS[6])
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
    call('ZADD', KEYS[12], born_at, id)
    emit_capped(KEYS[8], cap, 'waiting-children', 'jobId', id)
    return finish_add(id, job)
  end
  local function add_or_find(number)
    local at = 4 * number
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
    call('ZADD', KEYS[9], '0', '0')
  end
end
return add_rest
end
local function load_delay_slot()
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
return delay_slot
end
local function load_mark_delayed()
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
return mark_delayed
end
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
local settings = redis.pcall('HMGET', KEYS[3], 'opts.maxLenEvents', 'paused', 'concurrency')
local cap = settings[1]
if not (cap and plain_count(cap)) or (settings[3] and not tonumber(settings[3])) then
  plain = 0
end
if sort == '2' and plain > 0 then
  local turn = redis.pcall('GET', KEYS[11])
  if turn and not (type(turn) == 'string' and plain_count(turn)) then
    plain = 0
  end
end
local last = plain > 0 and count_together(KEYS[4], plain)
if not last then
  plain = 0
else
  local events, own, last_stamp, stamp = KEYS[8], taken[1], nil, nil
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
      if math.abs(id) < 100000000000000 then
        id = id .. ''
      end
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
          score, due = slot(KEYS[6], placed_at, delay)
        end
        call('ZADD', KEYS[6], score, id)
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
    end
    if slot then
      load_mark_delayed()(KEYS[9], KEYS[6])
    else
      local target = settings[2] and KEYS[2] or KEYS[1]
      if fifo[1] then
        call('LPUSH', target, unpack(fifo))
      end
      if lifo[1] then
        call('RPUSH', target, unpack(lifo))
      end
      if urgent[1] then
        local turn = call('INCRBY', KEYS[11], stored_count) - stored_count
        for number = 1, stored_count do
          urgent[2 * number - 1] = urgent[2 * number - 1] + (turn + number) % PRIORITY_STEP
        end
        call('ZADD', KEYS[10], unpack(urgent))
      end
      if not settings[2]
        and not (settings[3] and call('LLEN', KEYS[7]) >= tonumber(settings[3])) then
        call('ZADD', KEYS[9], '0', '0')
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
)

FETCH_MANY = Script(
    name="fetchMany",
    sha1="213b53760932833a444167d535ff281454d56a01",
    keys=11,
    source="""\
local call = redis.call
local function is_plain_ms(number)
  return type(number) == 'number' and number >= 1 and number < 100000000000000 and number % 1 == 0
end
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
local fetched_bytes = 0
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
    elseif name == 'data' then
      fetched_bytes = fetched_bytes + #fields[index + 1]
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
local function load_pop_next()
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local settings = nil
local function queue_settings(meta)
  if not settings then
    settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
  end
  return settings
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
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
local function load_promote_due()
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local function promote_due(base, now, target, held)
  local due = call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  call('ZREM', KEYS[7], unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      call('LPUSH', target, id)
    else
      zadd_by_priority(KEYS[3], KEYS[10], priority, id)
    end
    emit(KEYS[4], 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(KEYS[11], held)
  return #due
end
return promote_due
end
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end
local function pop_prioritized()
  local id = call('ZPOPMIN', KEYS[3])[1]
  if id then
    call('LPUSH', KEYS[2], id)
    return id
  end
  call('DEL', KEYS[10])
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
local marked = false
local promoted_at = nil
local function activate(base, id, now, maximum, duration, options, token)
  local job = base .. id
  token = token or options.token
  if maximum and call('INCR', KEYS[6]) == 1 then
    call('PEXPIRE', KEYS[6], math.floor(math.abs(duration)))
  end
  if token ~= '0' then
    call('SET', job .. ':lock', token, 'PX', options.lockDuration)
  end
  call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  local fields = start_attempt(job, now, options.name)
  if not marked then
    call('ZADD', KEYS[11], '0', '0')
    marked = true
  end
  return { fields, id, 0, 0 }
end
local function fetch_next(base, now, options, token, take)
  local known = queue_settings(KEYS[9])
  local held = is_held(known[1], known[2], KEYS[2])
  if promoted_at ~= now then
    local promoted = 0
    if call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
      local target = known[1] and KEYS[8] or KEYS[1]
      promoted = load_promote_due()(base, now, target, held)
    end
    if promoted < 1000 then
      promoted_at = now
    end
  end
  local maximum = effective_maximum(known[3], options)
  local pause = limited_for(KEYS[6], maximum)
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
  local due = next_due(KEYS[7])
  if due then
    return { 0, 0, 0, due }
  end
  return nil
end
local function pop_next()
  local id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  if id and is_old_marker(id) then
    call('LREM', KEYS[2], '1', id)
    id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  end
  if id then
    return id
  end
  return pop_prioritized()
end
return fetch_next, pop_next
end
local MOST_BYTES = 1000000
local base, now, options, tokens = ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4])
local count = #tokens
local replies, done, over = {}, 0, false
local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max')
local due = redis.pcall('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
local coming = redis.pcall('LRANGE', KEYS[1], -count, '-1')
if coming[1] and not (known.err or due[1] or due.err or options.limiter) and
  not (known[1] or known[2] or known[3])
  and is_plain_ms(options.lockDuration) and call('LLEN', KEYS[2]) then
  local lock_ms, worker, taken = options.lockDuration .. '', options.name, {}
  local left, events, sub = #coming, KEYS[4], string.sub
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
    call('ZADD', KEYS[11], '0', '0')
    call('LPUSH', KEYS[2], unpack(taken))
    call('LTRIM', KEYS[1], '0', -1 - done)
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
)

FINISH_MANY = Script(
    name="finishMany",
    sha1="1a91ac2a2c618136bf392b1d59f43a75ddb46c9e",
    keys=15,
    source="""\
local function alone_or_error(job_function, ...)
  local passed, reply = pcall(job_function, ...)
  if passed then
    return reply
  end
  local text = type(reply) == 'table' and reply.err or tostring(reply)
  return { string.match(text, ': %-(%u+ .*)$') or text }
end
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
local function is_plain_ms(number)
  return type(number) == 'number' and number >= 1 and number < 100000000000000 and number % 1 == 0
end
local call = redis.call
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
local fetched_bytes = 0
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
    elseif name == 'data' then
      fetched_bytes = fetched_bytes + #fields[index + 1]
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
local function load_finish_rest()
local deferred = nil
local emitted = 0
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
  emitted = emitted + 1
end
local function purge(job)
  return call('DEL',
    job, job .. ':logs', job .. ':dependencies', job .. ':processed', job .. ':failed', job .. ':unsuccessful'
  )
end
local function split_job_key(job)
  return string.match(job, '^(.*:)([^:]*)$')
end
local function release_lock(job, stalled, token, id)
  if token == '0' then
    return nil
  end
  local lock = job .. ':lock'
  local owner = deferred.locks[lock]
  if owner == nil then
    owner = call('GET', lock)
  end
  if owner == token then
    deferred.locks[lock] = false
    deferred.released[#deferred.released + 1] = lock
    deferred.stalled[#deferred.stalled + 1] = id
    return nil
  end
  if owner then
    return -6
  end
  return -2
end
local function write_fields(job, packed)
  local items = packed ~= '' and cmsgpack.unpack(packed)
  if items then
    call('HMSET', job, unpack(items))
  end
end
local function store_default_cap(meta)
  call('HSET', meta, 'opts.maxLenEvents', '10000')
  return '10000'
end
local settings = nil
local function queue_settings(meta)
  if not settings then
    settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration', 'opts.maxLenEvents')
  end
  return settings
end
local function is_held(paused_field, concurrency, active)
  if paused_field then
    return true
  end
  if concurrency and call('LLEN', active) >= tonumber(concurrency) then
    return true
  end
  return false
end
local function next_due(delayed)
  local score = call('ZRANGE', delayed, '0', '0', 'WITHSCORES')[2]
  return score and score / 4096
end
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
local function load_promote_due()
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
local function priority_of(job)
  return tonumber(call('HGET', job, 'priority')) or 0
end
local function promote_due(base, now, target, held)
  local due = call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1000')
  call('ZREM', KEYS[7], unpack(due))
  for index = 1, #due do
    local id = due[index]
    local job = base .. id
    local priority = priority_of(job)
    if priority == 0 then
      call('LPUSH', target, id)
    else
      zadd_by_priority(KEYS[3], KEYS[10], priority, id)
    end
    emit(KEYS[4], 'waiting', 'jobId', id, 'prev', 'delayed')
    call('HSET', job, 'delay', '0')
  end
  mark_ready(KEYS[15], held)
  return #due
end
return promote_due
end
local function is_old_marker(id)
  return string.sub(id, 1, 2) == '0:'
end
local function pop_prioritized()
  local id = call('ZPOPMIN', KEYS[3])[1]
  if id then
    call('LPUSH', KEYS[2], id)
    return id
  end
  call('DEL', KEYS[10])
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
local marked = false
local promoted_at = nil
local function activate(base, id, now, maximum, duration, options, token)
  local job = base .. id
  token = token or options.token
  if maximum and call('INCR', KEYS[6]) == 1 then
    call('PEXPIRE', KEYS[6], math.floor(math.abs(duration)))
  end
  if token ~= '0' then
    local lock = job .. ':lock'
    if deferred.locks[lock] == false then
      deferred.flush_released()
    end
    deferred.locks[lock] = token
  end
  if token ~= '0' then
    call('SET', job .. ':lock', token, 'PX', options.lockDuration)
  end
  call('XADD', KEYS[4], '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  emitted = emitted + 1
  local fields = start_attempt(job, now, options.name)
  if not marked then
    call('ZADD', KEYS[15], '0', '0')
    marked = true
  end
  return { fields, id, 0, 0 }
end
local function fetch_next(base, now, options, token, take)
  local known = queue_settings(KEYS[9])
  local held = is_held(known[1], known[2], KEYS[2])
  if promoted_at ~= now then
    local promoted = 0
    if call('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
      local target = known[1] and KEYS[8] or KEYS[1]
      promoted = load_promote_due()(base, now, target, held)
    end
    if promoted < 1000 then
      promoted_at = now
    end
  end
  local maximum = effective_maximum(known[3], options)
  local pause = limited_for(KEYS[6], maximum)
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
  local due = next_due(KEYS[7])
  if due then
    return { 0, 0, 0, due }
  end
  return nil
end
local function load_child_outcome()
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    call('ZADD', marker, due, '1')
  end
end
local PRIORITY_STEP = 4294967296
local function zadd_by_priority(prioritized, counter, priority, id)
  local turn = call('INCR', counter)
  call('ZADD', prioritized, priority * PRIORITY_STEP + turn % PRIORITY_STEP, id)
end
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
return child_completed, child_failed
end
local function load_unlink_child()
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
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
return unlink_given
end
local function load_retention()
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
local function queue_gate(meta, active, wait, paused)
  local settings = call('HMGET', meta, 'paused', 'concurrency', 'max', 'duration')
  local target = settings[1] and paused or wait
  return target, is_held(settings[1], settings[2], active), settings[3], settings[4]
end
local function mark_ready(marker, held)
  if held then
    return
  end
  call('ZADD', marker, '0', '0')
end
local function requeue_parent(base, id)
  local target, held = queue_gate(base .. 'meta', base .. 'active', base .. 'wait', base .. 'paused')
  call('RPUSH', target, id)
  mark_ready(base .. 'marker', held)
end
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
local function forget(base, ids)
  for index = 1, #ids do
    local job = base .. ids[index]
    unlink_looked_up(job)
    purge(job)
    fetched_bytes = fetched_bytes + 2000
  end
end
local function keep_by_age(base, finished, now, age)
  local oldest = now - age * 1000
  forget(base, call('ZREVRANGEBYSCORE', finished, oldest, '-inf'))
  call('ZREMRANGEBYSCORE', finished, '-inf', oldest)
end
local function keep_by_count(base, finished, count)
  forget(base, call('ZREVRANGE', finished, count, '-1'))
  call('ZREMRANGEBYRANK', finished, '0', -(count + 1))
end
return keep_by_age, keep_by_count
end
local function load_metrics()
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
return record_metric
end
local function pop_after_finish()
  local next_id = call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not next_id then
    return pop_prioritized()
  end
  if not is_old_marker(next_id) then
    return next_id
  end
  call('LREM', KEYS[2], '1', next_id)
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
  local known = queue_settings(KEYS[9])
  local cap = known[5]
  if not cap then
    cap = store_default_cap(KEYS[9])
    known[5] = cap
  end
  if may_wait and plain_count(cap) then
    deferred.trims = deferred.trims + 1
    deferred.cap, deferred.emitted = cap + 0, emitted
    return
  end
  call('XTRIM', events, 'MAXLEN', '~', cap)
end
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
local function finish_job(base, id, job, now, field, result, outcome, finished, metrics, token, options, packed_fields,
  fetch)
  local active, events = KEYS[2], KEYS[4]
  local has_failed = outcome == 'failed'
  local stored = redis.pcall('HMGET',
    job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa'
  )
  if not stored[1] and call('EXISTS', job) == 0 then
    return -1
  end
  local may_wait_for_children = not has_failed and not deferred.childless
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
  local refusal = release_lock(job, KEYS[5], token, id)
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
  local may_wait = not (has_parent or link or keep_age or (keep_count and keep_count > 0))
  if not may_wait then
    deferred.flush_finished()
  end
  if call('LREM', active, '-1', id) == 0 then
    return -3
  end
  trim_own(events, may_wait)
  if stored[4] then
    release_own_dedup(base, id, stored[4])
  end
  if parent_id == '' and has_parent then
    local parent_base
    parent_base, parent_id = split_job_key(parent)
    parent_queue = string.sub(parent_base, 1, -2)
  end
  if parent_id == '' then
  else
    promoted_at = nil
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
    call('HSET', job, 'atm', attempts_text, field, result, 'finishedOn', now)
    if (has_failed and (stored[6] or parent_id ~= '')) then
      call('HDEL', job, 'defa')
    end
    if keep_age ~= nil then
      load_retention()(base, finished, now, keep_age)
    end
    if keep_count ~= nil and keep_count > 0 then
      local _, keep_by_count = load_retention()
      keep_by_count(base, finished, keep_count)
    end
  end
  call('XADD', events,
    '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
  )
  emitted = emitted + 1
  if has_failed and attempts_made >= tonumber(options.attempts) then
    call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', attempts_text)
    emitted = emitted + 1
  end
  if options.maxMetricsSize ~= '' then
    count_metric(metrics, options.maxMetricsSize, now, may_wait)
  end
  if fetch then
    local reply = fetch_next(base, now, options, token, pop_after_finish)
    if reply then
      return reply
    end
  end
  if call('LLEN', KEYS[1]) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS[3]) == 0 then
    emit(events, 'drained')
  else
  end
  return 0
end
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
      call('SREM', KEYS[5], unpack(stalled))
      deferred.stalled = {}
    end
  end
  function deferred.flush_finished()
    if deferred.trims > 0 then
      local cap = (deferred.cap + emitted - deferred.emitted) .. ''
      for _ = 1, deferred.trims do
        if call('XTRIM', KEYS[4], 'MAXLEN', '~', cap) == 0 then
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
      failed and KEYS[12] or KEYS[11], failed and KEYS[14] or KEYS[13], token,
      all_options[place], ARGV[outcome_at], heads[at - 2] == 1)
    if fetched_bytes > most_bytes then
      break
    end
  end
  deferred.flush_released()
  deferred.flush_finished()
end
return finish_rest
end
local MOST_BYTES = 1000000
local base, all_options, heads = ARGV[1], cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
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
local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
local coming = redis.pcall('LRANGE', KEYS[1], -1 - fetches, '-1')
local window = redis.pcall('LRANGE', KEYS[2], -2 * count, '-1')
local due = redis.pcall('ZRANGEBYSCORE', KEYS[7], '0', (latest + 1) * 4096 - 1, 'LIMIT', '0', '1')
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
  local events, sub = KEYS[4], string.sub
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
    elseif call('LREM', KEYS[2], '-1', id) == 0 then
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
    call('SREM', KEYS[5], unpack(stalled))
    if finished[1] then
      call('ZADD', KEYS[11], unpack(finished))
    end
    if failed[1] then
      call('ZADD', KEYS[12], unpack(failed))
    end
    cap = (cap + last_events) .. ''
    for _ = 1, done do
      if call('XTRIM', events, 'MAXLEN', '~', cap) == 0 then
        break
      end
    end
    if started then
      call('ZADD', KEYS[15], '0', '0')
    end
    if taken[1] then
      call('LPUSH', KEYS[2], unpack(taken))
    end
    if first <= size then
      local staying = {}
      for place = first, size do
        if window[place] then
          staying[#staying + 1] = window[place]
        end
      end
      call('LTRIM', KEYS[2], '0', first - size - 2)
      if staying[1] then
        call('RPUSH', KEYS[2], unpack(staying))
      end
    end
    if taken[1] then
      call('LTRIM', KEYS[1], '0', -1 - #taken)
    end
  end
end
if done < count and fetched_bytes <= MOST_BYTES then
  load_finish_rest()(base, all_options, heads, done + 1, count, MOST_BYTES, replies)
end
return replies
""",
)

SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        script.name: script
        for script in (
            ADD_DELAYED_JOB,
            ADD_JOB_SCHEDULER,
            ADD_LOG,
            ADD_PARENT_JOB,
            ADD_PRIORITIZED_JOB,
            ADD_REPEATABLE_JOB,
            ADD_STANDARD_JOB,
            CHANGE_DELAY,
            CHANGE_PRIORITY,
            CLEAN_JOBS_IN_SET,
            DRAIN,
            EXTEND_LOCK,
            EXTEND_LOCKS,
            GET_COUNTS,
            GET_COUNTS_PER_PRIORITY,
            GET_DEPENDENCY_COUNTS,
            GET_JOB_SCHEDULER,
            GET_METRICS,
            GET_RANGES,
            GET_RATE_LIMIT_TTL,
            GET_STATE,
            GET_STATE_V2,
            IS_FINISHED,
            IS_JOB_IN_LIST,
            IS_MAXED,
            MOVE_JOB_FROM_ACTIVE_TO_WAIT,
            MOVE_JOBS_TO_WAIT,
            MOVE_STALLED_JOBS_TO_WAIT,
            MOVE_TO_ACTIVE,
            MOVE_TO_DELAYED,
            MOVE_TO_FINISHED,
            MOVE_TO_WAITING_CHILDREN,
            OBLITERATE,
            PAGINATE,
            PAUSE,
            PROMOTE,
            RELEASE_LOCK,
            REMOVE_CHILD_DEPENDENCY,
            REMOVE_JOB,
            REMOVE_JOB_SCHEDULER,
            REMOVE_REPEATABLE,
            REMOVE_UNPROCESSED_CHILDREN,
            REPROCESS_JOB,
            RETRY_JOB,
            SAVE_STACKTRACE,
            UPDATE_DATA,
            UPDATE_JOB_SCHEDULER,
            UPDATE_PROGRESS,
            UPDATE_REPEATABLE_JOB_MILLIS,
        )
    }
)

OUR_SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        script.name: script
        for script in (
            ADD_MANY,
            FETCH_MANY,
            FINISH_MANY,
        )
    }
)
