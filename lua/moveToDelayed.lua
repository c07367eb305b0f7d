--- keys: marker, active, prioritized (to fetch), delayed, job, events, meta, stalled
--- args: base (to fetch), now, id, token, delay, skip_attempt (1), fields (MessagePack array, or empty)
--- when next_job_of_move_to_delayed
--- keys: wait, limiter
--- unless waiting_layout v6
--- keys: paused
--- end
--- keys: pc
--- args: fetch (1), options (of the fetch, MessagePack map, or empty)
--- lazy fetch_in_place: fetch_in_place
--- end
--- include call
--- include emit_capped
--- include event_cap
--- include delay_slot
--- include mark_delayed
--- include release_lock
--- include write_fields

-- specs/03-transitions-admin-getters.md#sec-3-1
local delayed, job, id, delay = KEYS.delayed, KEYS.job, ARGV.id, ARGV.delay
if call('EXISTS', job) == 0 then
  --@no-job
  return -1
end
local refusal = release_lock(job, KEYS.stalled, ARGV.token, id)
if refusal then
  return refusal
end
write_fields(job, ARGV.fields)
if call('LREM', KEYS.active, '-1', id) == 0 then
  --@not-active
  return -3
end

local score, due = delay_slot(delayed, tonumber(ARGV.now), tonumber(delay))
if ARGV.skip_attempt == '0' then
  --@attempt
  call('HINCRBY', job, 'atm', '1')
else
  --@no-attempt
end
-- the hash keeps the relative delay, the event tells the absolute due time
call('HSET', job, 'delay', delay)
local cap = event_cap(KEYS.meta)
call('ZADD', delayed, score, id)
emit_capped(KEYS.events, cap, 'delayed', 'jobId', id, 'delay', due)
--- when next_job_of_move_to_delayed
-- specs/06-later-versions.md#sec-11-7, step 9: what gives no job is dropped, but not what was promoted.
if ARGV.fetch == '1' then
  local reply = load_fetch_in_place()(ARGV.base, ARGV.now, cmsgpack.unpack(ARGV.options))
  if reply and type(reply[1]) == 'table' then
    --@next-job
    return reply
  end
  --@no-next-job
end
--- end
mark_delayed(KEYS.marker, delayed)
--@moved
return 0
