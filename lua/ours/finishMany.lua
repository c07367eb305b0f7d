--- keys: wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc
--- keys: completed, failed, metrics of completed, metrics of failed, marker
--- args: base prefix, options (MessagePack array of maps)
--- args: heads (MessagePack array: id, token, now, failed (1), fetch (1), numbers of options and of outcome, next id, ...)
--- args: result and fields of each outcome ...
--- include each_alone
--- include failure_fields
--- include plain_ms
--- include start_attempt
--- lazy finish_rest: finish_rest

-- specs/08-batches.md#finish-many. Not one of BullMQ's scripts.
local MOST_SPENT = 1000000
local base, all_options, heads = ARGV[1], cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
local count = #heads / 7
local replies, done = {}, 0

local kinds = {}
for number = 1, #all_options do
  local options = all_options[number]
  local keep, lock_ms = options.keepJobs, options.lockDuration
  local attempts = tonumber(options.attempts)
  if type(keep) == 'table' and keep.age == nil and (keep.count == nil or keep.count == -1 or keep.count == 0)
    and options.maxMetricsSize == '' and not options.limiter and is_plain_ms(lock_ms) and attempts then
    kinds[number] = { keep.count == 0, lock_ms .. '', attempts, options.name }
  end
end
if not next(kinds) then
  --@no-kind
  load_finish_rest()(base, all_options, heads, 1, count, MOST_SPENT, replies)
  return replies
end

-- specs/08-batches.md#plain-jobs: those at the beginning of the call that touch nothing but what all of them touch.
-- What they have in common is read before anything is written. A job waits, or others are active: whatever ends, the queue
-- is not drained.
local jobs, ending, locks, children, fetches, latest = {}, {}, {}, {}, 0, 0
for number = 1, count do
  local at = 7 * number - 1
  local id, now = heads[at - 5], tonumber(heads[at - 3])
  local job = base .. id
  jobs[number], ending[id], locks[number] = job, true, job .. ':lock'
  fetches = fetches + heads[at - 1]
  if now > latest then
    latest = now
  end
  if heads[at - 2] == 0 then
    children[#children + 1] = job .. ':dependencies'
    children[#children + 1] = job .. ':unsuccessful'
  end
end
local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max', 'opts.maxLenEvents')
-- the jobs that are taken first stand last in both lists
local coming = redis.pcall('LRANGE', KEYS[1], -1 - fetches, '-1')
local window = redis.pcall('LRANGE', KEYS[2], -2 * count, '-1')
local due = redis.pcall('ZRANGEBYSCORE', KEYS[7], '0', (latest + 1) * 4096 - 1, 'LIMIT', '0', '1')
local left, size, cap = #coming, #window, known[4]
if plain_count(cap) and cap and not (known[1] or known[2] or known[3] or due[1] or due.err or window.err)
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
    local at = 7 * number - 1
    local id, now, has_failed, place = heads[at - 5], heads[at - 3], heads[at - 2] == 1, heads[at]
    local outcome_at = 2 * heads[at + 1] + 2
    local job, token, fetch, kind = jobs[number], heads[at - 4], heads[at - 1] == 1, kinds[place]
    local next_id = fetch and coming[left]

    -- Is it plain?
    local stored = redis.pcall('HMGET', job, 'name', 'parentKey', 'parent', 'deid', 'atm', 'defa')
    local attempts, text, fields = nil, nil, nil
    if kind and ending[id] and owners[number] == token and token ~= '0' and stored[1]
      and not (stored[2] or stored[3] or stored[4]) then
      attempts, text = plain_count(stored[5])
    end
    if fetch then
      if not next_id then
        --@none-waits
        attempts = nil
      elseif ending[next_id] ~= nil then
        --@ends-too
        attempts = nil
      elseif sub(next_id, 1, 2) == '0:' then
        --@old-marker
        attempts = nil
      end
    end
    local packed = ARGV[outcome_at + 1]
    if packed ~= '' and attempts then
      fields = failure_fields(packed)
      attempts = fields and attempts
    end
    if not attempts then
      --@not-plain
      break
    end
    place = places[id]
    if place then
      --@in-window
      window[place] = false
      if place < first then
        first = place
      end
    elseif call('LREM', KEYS[2], '-1', id) == 0 then
      --@not-active
      break
    else
      --@beyond-window
    end

    -- It ends.
    ending[id] = false
    gone[#gone + 1] = locks[number]
    stalled[number] = id
    local outcome, field, result, members = 'completed', 'returnvalue', ARGV[outcome_at], finished
    if has_failed then
      outcome, field, members = 'failed', 'failedReason', failed
    end
    if kind[1] then
      --@removed
      local at_gone = #gone
      gone[at_gone + 1], gone[at_gone + 2], gone[at_gone + 3] = job, job .. ':logs', job .. ':dependencies'
      gone[at_gone + 4], gone[at_gone + 5] = job .. ':processed', job .. ':failed'
      gone[at_gone + 6] = job .. ':unsuccessful'
    else
      if fields then
        --@fields
        call('HMSET', job, unpack(fields))
      end
      call('HSET', job, 'atm', text, field, result, 'finishedOn', now)
      if has_failed and stored[6] then
        --@deferred-failure
        call('HDEL', job, 'defa')
      end
      local at_member = #members
      members[at_member + 1], members[at_member + 2] = now, id
    end
    call('XADD', events, '*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active')
    last_events = 1
    if has_failed and attempts >= kind[3] then
      --@exhausted
      call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', text)
      last_events = 2
    end
    done = number

    -- The next one begins.
    if fetch then
      left = left - 1
      taken[#taken + 1] = next_id
      local next_job = base .. next_id
      call('SET', next_job .. ':lock', token, 'PX', kind[2])
      call('XADD', events, '*', 'event', 'active', 'jobId', next_id, 'prev', 'waiting')
      last_events = last_events + 1
      -- an error is a list of one
      local answer = alone_or_error(start_attempt, next_job, now, kind[4])
      if answer[2] then
        --@begun
        answer = { answer, next_id, 0, 0 }
        started = true
      else
        --@refused
      end
      replies[number] = answer
      if spent > MOST_SPENT then
        --@spent
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
    -- each end trims before its event, a limited number: specs/08-batches.md#postponed
    cap = (cap + last_events) .. ''
    for _ = 1, done do
      if call('XTRIM', events, 'MAXLEN', '~', cap) == 0 then
        break
      end
    end
    if started then
      call('ZADD', KEYS[15], '0', '0')
    end
    -- specs/08-batches.md#cut-last
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
        --@staying
        call('RPUSH', KEYS[2], unpack(staying))
      end
    end
    if taken[1] then
      call('LTRIM', KEYS[1], '0', -1 - #taken)
    end
  end
end
if done < count and spent <= MOST_SPENT then
  --@rest
  load_finish_rest()(base, all_options, heads, done + 1, count, MOST_SPENT, replies)
end
return replies
