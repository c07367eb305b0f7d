--- keys: wait, active, prioritized, events, stalled (not used), limiter, delayed, paused, meta, pc, marker
--- args: base prefix, now, options (MessagePack map), tokens (MessagePack array)
--- include call
--- include plain_ms
--- include start_attempt
--- lazy take_first: fetch_next, take_first

-- specs/08-batches.md#fetch-many. Not one of BullMQ's scripts.
local MOST_SPENT = 1000000
local base, now, options, tokens = ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4])
local count = #tokens
local replies, done, over = {}, 0, false

-- specs/08-batches.md#plain-jobs: from the list, as long as nothing else is to be looked at. A job that may be refused is
-- left to be the first of a call, whose error it then is.
local known = redis.pcall('HMGET', KEYS[9], 'paused', 'concurrency', 'max')
local due = redis.pcall('ZRANGEBYSCORE', KEYS[7], '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')
-- the job that is taken first stands last
local coming = redis.pcall('LRANGE', KEYS[1], -count, '-1')
if coming[1] and not (known.err or known[1] or known[2] or known[3] or due[1] or due.err or options.limiter)
  and is_plain_ms(options.lockDuration) and call('LLEN', KEYS[2]) then
  local lock_ms, worker, taken = options.lockDuration .. '', options.name, {}
  local left, events, sub = #coming, KEYS[4], string.sub
  for number = 1, math.min(count, left) do
    local id, token = coming[left + 1 - number], tokens[number]
    if sub(id, 1, 2) == '0:' or token == '0' then
      --@not-plain
      break
    end
    local job = base .. id
    local found = redis.pcall('HGETALL', job)
    local fields = not found.err and start_attempt(job, now, worker, found)
    if not fields then
      --@odd
      over = done > 0
      break
    end
    call('SET', job .. ':lock', token, 'PX', lock_ms)
    call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
    taken[number] = id
    replies[number] = { fields, id, 0, 0 }
    done = number
    if spent > MOST_SPENT then
      --@spent
      over = true
      break
    end
  end
  if done > 0 then
    --@plain
    -- specs/08-batches.md#cut-last
    call('ZADD', KEYS[11], '0', '0')
    call('LPUSH', KEYS[2], unpack(taken))
    call('LTRIM', KEYS[1], '0', -1 - done)
  end
end

if done < count and not over then
  --@rest
  local fetch_next, take_first = load_take_first()
  for number = done + 1, count do
    local passed, reply = pcall(fetch_next, base, now, options, tokens[number], KEYS[11], take_first)
    if not passed then
      -- those before it were fetched
      return number > 1 and replies or error(reply, 0)
    end
    replies[number] = reply or { 0, 0, 0, 0 }
    if replies[number][2] == 0 or spent > MOST_SPENT then
      break
    end
  end
end
return replies
