--- keys: wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc
--- keys: finished (completed or failed), job, metrics (of that kind), marker
--- args: id, now, field (of the result), result, outcome (completed or failed), fetch (1), base
--- args: options (MessagePack map), fields (MessagePack array, or empty)
--- record stored: name parent_key parent dedup_id attempts deferred
--- record known: paused concurrency max cap
--- include call
--- include failure_fields
--- include plain_ms
--- include start_attempt
--- lazy finish_job: finish_job
--- lazy retention: keep_by_age, keep_by_count

-- specs/02-worker-path.md#sec-5. A plain job is one without parent, children, deduplication, metrics and rate limit
-- in a queue that is open: most are, and what the others need is not even made for them. Nothing is written before that
-- is known.
local job, id, now, events = KEYS.job, ARGV.id, ARGV.now, KEYS.events
local lock = job .. ':lock'
local readable, options = pcall(cmsgpack.unpack, ARGV.options)
readable = readable and type(options) == 'table'
local keep, token = readable and options.keepJobs, readable and options.token
local stored, attempts, attempts_text, cap, plain, may_delay
if type(keep) == 'table' and (keep.age == nil or type(keep.age) == 'number')
  and (keep.count == nil or type(keep.count) == 'number') and tonumber(options.attempts) and token ~= '0' and
  --- paste plain_options(options)
  -- what is kept is refused for a moment that is no number, what is removed only by the fetch
  and (keep.count ~= 0 or plain_count(now)) then
  stored = redis.pcall('HMGET',
    --- paste job_state(job)
  )
  if
    --- paste plain_job(stored)
    and redis.pcall('GET', lock) == token then
    local known = redis.pcall('HMGET', KEYS.meta, 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
    cap = known.cap
    attempts, attempts_text = plain_count(stored.attempts)
    plain = attempts and cap and (cap == '10000' or plain_count(cap))
      and (ARGV.fields == '' or failure_fields(ARGV.fields)) and
      --- paste open_queue(known)
  end
end
if plain then
  local children, unsuccessful, delayed = job .. ':dependencies', job .. ':unsuccessful', KEYS.delayed
  if call('EXISTS', delayed, children, unsuccessful) ~= 0 then
    -- a moment that is no number is refused where its first command stands
    local due = tonumber(now) and redis.pcall('ZRANGEBYSCORE', delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
    may_delay = true
    plain = due and not due.err and not due[1]
      and (ARGV.outcome ~= 'completed' or call('EXISTS', children, unsuccessful) == 0)
  end
end
if not plain then
  --@not-plain
  return load_finish_job()(ARGV.base, id, job, now, ARGV.field, ARGV.result, ARGV.outcome, KEYS.finished, KEYS.metrics,
    readable and token, readable and options, ARGV.fields, ARGV.fetch == '1')
end

-- The job ends.
local active, field, result, outcome = KEYS.active, ARGV.field, ARGV.result, ARGV.outcome
call('DEL', lock)
call('SREM', KEYS.stalled, id)
if ARGV.fields ~= '' then
  --@plain-fields
  call('HMSET', job, unpack(cmsgpack.unpack(ARGV.fields)))
end
if call('LREM', active, '-1', id) == 0 then
  --@plain-not-active
  return -3
end
local has_failed, has_event = outcome == 'failed', false
if keep.count == 0 then
  --@plain-removed
  call('XTRIM', events, 'MAXLEN', '~', cap)
  call('DEL',
    --- paste job_keys(job)
  )
else
  local finished = KEYS.finished
  -- Trimming before the event equals trimming with it to one more. The event comes before what it tells, for nothing of
  -- that may be there when the stream is refused. Retention may have events of its own before.
  local retains = keep.age ~= nil or (keep.count ~= nil and keep.count > 0)
  has_event = not retains and redis.pcall('ZADD', finished, 'NX', now, id) == 1
  local capped = has_event and (cap == '10000' and '10001' or cap + 1 .. '')
  if has_event and type(redis.pcall('XADD', events, 'MAXLEN', '~', capped,
    --- paste end_event(id, outcome, field, result)
  )) == 'table' then
    --@plain-event-refused
    call('ZREM', finished, id)
    has_event = false
  end
  if not has_event then
    --@plain-again
    call('XTRIM', events, 'MAXLEN', '~', cap)
    --- paste add_finished(finished, now, job, id, attempts = attempts_text)
  end
  --- paste store_end(job, now, field, result, attempts = attempts_text,
  ---   drops_deferred = (stored.deferred and has_failed))
  if retains then
    local keep_by_age, keep_by_count = load_retention()
    if keep.age ~= nil then
      --@plain-by-age
      --- when age_retention_limit
      keep_by_age(ARGV.base, finished, now, keep.age, keep.limit)
      --- else
      keep_by_age(ARGV.base, finished, now, keep.age)
      --- end
    end
    if keep.count ~= nil and keep.count > 0 then
      --@plain-by-count
      keep_by_count(ARGV.base, finished, keep.count)
    end
  end
end
--- paste emit_end(events, id, outcome, field, result, has_failed, attempts, allowed = tonumber(options.attempts),
---   text = attempts_text, has_event) with maybe_emitted

-- The next one begins.
if ARGV.fetch == '1' then
  local next_id = call('RPOPLPUSH', KEYS.wait, active)
  -- specs/02-worker-path.md#w6, finish form
  local old = next_id and string.sub(next_id, 1, 2) == '0:' and next_id
  if old then
    --@plain-old-marker
    call('LREM', active, '1', old)
    next_id = nil
  end
  if not next_id and (not old or old == '0:0') then
    next_id = call('ZPOPMIN', KEYS.prioritized)[1]
    if next_id then
      --@plain-prioritized
      call('LPUSH', active, next_id)
    else
      --@plain-counter-reset
      call('DEL', KEYS.pc)
      assert(not old, 'no prioritized job after the marker 0:0')
    end
  end
  if next_id then
    --@plain-next
    local next_job = ARGV.base .. next_id
    --- paste begin_job(job = next_job, id = next_id, token, lock_ms = (options.lockDuration .. ''), events)
    --- paste answer_begun(job = next_job, id = next_id, now, worker = options.name)
  end
  local score = may_delay and call('ZRANGE', KEYS.delayed, '0', '0', 'WITHSCORES')[2]
  if score then
    --@plain-next-due
    return { 0, 0, 0, score / 4096 }
  end
end
if call('LLEN', KEYS.wait) == 0 and call('LLEN', active) == 0 and call('ZCARD', KEYS.prioritized) == 0 then
  --@plain-drained
  call('XADD', events, '*', 'event', 'drained')
end
return 0
