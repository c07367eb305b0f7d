--- include call
--- include count_together
--- include emit_capped
--- include store_job
--- lazy deduplicate: deduplicate

-- specs/08-batches.md#add-many. Set by the command that adds several jobs; nil in a command for one.
local many = nil

local base, custom_id, name, born_at, parent, pending, link, scheduler, dedup_key, data

-- specs/01-data-model-and-adding.md#sec-7-1
local function open_job(packed, job_data)
  base, custom_id, name, born_at = packed[1], packed[2], packed[3], packed[4]
  parent, pending, link = packed[5], packed[6], packed[7]
  scheduler, dedup_key, data = packed[8], packed[9], job_data
end

-- specs/01-data-model-and-adding.md#sec-6-2, step 3
local function next_number(counter)
  if not many then
    return call('INCR', counter)
  end
  if many.reserved == 0 then
    local last = many.run > 1 and count_together(counter, many.run)
    if not last then
      return call('INCR', counter)
    end
    many.reserved, many.last = many.run, last
  end
  many.reserved = many.reserved - 1
  return many.last - many.reserved
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
local function admit(sequence, options, completed, delayed, events, cap)
  local id, job = custom_id, nil
  if id == '' then
    --@generated-id
    id = sequence
    job = base .. id
    if math.abs(id) < 100000000000000 then
      -- both text forms are the same here (specs/01-data-model-and-adding.md#sec-2-6), and text is cheaper to pass on
      id = id .. ''
    end
  else
    --@custom-id
    job = base .. id
    if call('EXISTS', job) == 1 then
      return id, job, load_duplicate_job()(id, job, completed, events, cap)
    end
  end
  if many and options.de then
    many.flush()
  end
  local owner = options.de and load_deduplicate()(options.de, dedup_key, id, base, delayed, events, cap)
  if owner then
    --@deduplicated
    return id, job, owner
  end
  store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, many and many.encoded)
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
