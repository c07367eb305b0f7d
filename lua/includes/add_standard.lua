--- include call
--- include add_job
--- include add_settings
--- include emit_capped
--- include mark_ready

-- specs/01-data-model-and-adding.md#sec-7-2, from step 2 on
local function add_standard(wait, paused, meta, counter, completed, delayed, active, events, marker, options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number(counter)
  local settings = add_settings(meta)
  local cap = settings[1]
  local id, job, reply = admit(sequence, options, completed, delayed, events, cap)
  if reply then
    return reply
  end
  local target, held = settings[2] and paused or wait, add_held(settings, active)
  if many then
    if options.lifo then
      call('RPUSH', target, id)
    else
      many.target = target
      many.waiting[#many.waiting + 1] = id
    end
    many.ready = many.ready or not held
  else
    if options.lifo then
      --@lifo
      call('RPUSH', target, id)
    else
      --@fifo
      call('LPUSH', target, id)
    end
    mark_ready(marker, held)
  end
  emit_capped(events, cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
