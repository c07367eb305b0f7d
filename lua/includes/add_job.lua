--- needs: KEYS.delayed, KEYS.events, KEYS.id
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
-- specs/08-batches.md#add-many. Set by the command that adds several jobs while they may go together.
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

-- specs/01-data-model-and-adding.md#sec-7-1
local function open_job(head, job_data)
  base, custom_id, name, born_at = head.base, head.id, head.name, head.timestamp
  parent, pending, link = head.parent, head.pending, head.link
  scheduler, dedup_key, data = head.scheduler, head.dedup_key, job_data
  --- when deferred_parent_release
  -- specs/06-later-versions.md#sec-11-2
  deferring = head.deferring
  --- end
end

-- specs/01-data-model-and-adding.md#sec-6-2, step 3
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

-- specs/01-data-model-and-adding.md#sec-6-2, step 2
local function lacks_parent()
  if parent ~= nil and call('EXISTS', parent) == 0 then
    --@no-parent
    return true
  end
  return false
end

--- lazy duplicate_job: answer_duplicate

-- specs/01-data-model-and-adding.md#sec-6-2, steps 5 to 7.
-- Gives id and key of the stored job, or the reply of the command in third place.
local function admit(sequence, options, cap)
  local id, job = custom_id, nil
  if id == '' then
    --@generated-id
    id = sequence
    job = base .. id
    --- paste text_id(id)
  else
    --@custom-id
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
    --@deduplicated
    return id, job, owner
  end
  --- when batch
  store_job(KEYS.events, job, id, name, data, born_at, options, parent, link, scheduler, batch and batch.encoded)
  --- else
  store_job(KEYS.events, job, id, name, data, born_at, options, parent, link, scheduler)
  --- end
  return id, job, nil
end

-- specs/01-data-model-and-adding.md#sec-6-10. Gives the reply, and true: only a job that was added comes here.
local function finish_add(id, job)
  if pending ~= nil then
    --@linked
    call('SADD', pending, job)
  end
  --@added
  return id .. '', true
end
