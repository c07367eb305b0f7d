--- needs: KEYS.events, KEYS.meta
--- record kept: name data options parent link pending scheduler id
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
  --- paste place_new(id, options, now, delay, number = tonumber(delay), events = KEYS.events, cap)
end

-- specs/06-later-versions.md#l6, steps 2 to 9: adds the job that was kept until the active one ended. record: the key
-- that holds it.
local function requeue_kept(base, record, dedup_id, now)
  local kept = call('HMGET', record, 'name', 'data', 'opts', 'pk', 'pd', 'pdk', 'rjk', 'jid')
  local number = call('INCR', base .. 'id')
  local id = kept.id or number .. ''
  local options = cjson.decode(kept.options)
  local rule, key = options.de, base .. 'de:' .. dedup_id
  local ttl = rule and not rule.keepLastIfActive and rule.ttl
  if ttl and ttl > 0 then
    --@timed
    call('SET', key, id, 'PX', ttl)
  else
    --@untimed
    call('SET', key, id)
  end
  local cap, job = event_cap(KEYS.meta), base .. id
  -- the text of the link is stored as it is
  store_job(KEYS.events, job, id, kept.name, kept.data, now, options, kept.parent or nil, nil, kept.scheduler, nil,
    kept.link)
  --- when deferred
  emitted = emitted + 1
  --- end
  place_kept(id, options, tonumber(now), options.delay or 0, cap)
  if kept.pending then
    --@linked
    call('SADD', kept.pending, job)
  end
  --@requeued
  call('DEL', record)
end
