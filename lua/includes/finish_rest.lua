--- include call
--- include each_alone
--- include finish_job
--- include later
--- include spent

-- specs/08-batches.md#finish-many: the jobs from the given number on, one after the other. Appends their replies.
local function finish_rest(base, all_options, heads, from, count, most_spent, replies)
  local locks, names, pending = {}, {}, {}
  for number = from, count do
    local at = 6 * number
    local job = base .. heads[at - 5]
    if heads[at - 4] ~= '0' then
      names[#names + 1] = job .. ':lock'
    end
    if heads[at - 2] == 0 then
      pending[#pending + 1] = job .. ':dependencies'
      pending[#pending + 1] = job .. ':unsuccessful'
    end
  end
  if names[1] then
    local owners = call('MGET', unpack(names))
    for number = 1, #names do
      local name = names[number]
      locks[name] = owners[number]
    end
  end
  later = {
    locks = locks, released = {}, stalled = {}, stalled_key = KEYS[5], finished = {}, counted = {}, metric_at = {},
    events = KEYS[4], trims = 0, cap = 0, emitted = 0, childless = not pending[1] or call('EXISTS', unpack(pending)) == 0,
  }

  function later.flush_released()
    local released, stalled = later.released, later.stalled
    if released[1] then
      call('DEL', unpack(released))
      later.released = {}
    end
    if stalled[1] then
      call('SREM', later.stalled_key, unpack(stalled))
      later.stalled = {}
    end
  end

  -- Trimming takes whole nodes from the old end as long as the cap is kept, so once, with a cap higher by what was
  -- emitted since, takes what the single calls would have; each of those takes a limited number.
  function later.flush_finished()
    if later.trims > 0 then
      local cap = (later.cap + emitted - later.emitted) .. ''
      for _ = 1, later.trims do
        if call('XTRIM', later.events, 'MAXLEN', '~', cap) == 0 then
          break
        end
      end
      later.trims = 0
    end
    for key, members in pairs(later.finished) do
      call('ZADD', key, unpack(members))
      later.finished[key] = nil
    end
    for key, count in pairs(later.counted) do
      call('HINCRBY', key, 'count', count)
      later.counted[key] = nil
    end
    later.metric_at = {}
  end

  for number = from, count do
    local at = 6 * number
    local id, token = heads[at - 5], heads[at - 4]
    local failed, place = heads[at - 2] == 1, heads[at]
    replies[number] = alone_or_error(finish_job, base, id, base .. id, heads[at - 3],
      failed and 'failedReason' or 'returnvalue', ARGV[2 + 2 * number], failed and 'failed' or 'completed',
      failed and KEYS[12] or KEYS[11], failed and KEYS[14] or KEYS[13], token, all_options[place],
      ARGV[3 + 2 * number], heads[at - 1] == 1, KEYS[15])
    if spent > most_spent then
      break
    end
  end
  later.flush_released()
  later.flush_finished()
end
