--- needs: KEYS.events, KEYS.marker, KEYS.paused, KEYS.wait
--- include call
--- include add_job
--- include add_settings
--- include emit_capped
--- include mark_ready

-- specs/01-data-model-and-adding.md#sec-7-2, from step 2 on
local function add_standard(options)
  if lacks_parent() then
    return -5
  end
  local sequence = next_number()
  local settings = add_settings()
  local cap = settings.cap
  local id, job, reply = admit(sequence, options, cap)
  if reply then
    return reply
  end
  --- when waiting_layout v5
  local target, held = settings.paused and KEYS.paused or KEYS.wait, add_held(settings)
  --- else
  --- paste target_list(paused = settings.paused, wait = KEYS.wait, set_aside = KEYS.paused)
  local held = add_held(settings)
  --- end
  --- when batch
  if batch then
    if options.lifo then
      call('RPUSH', target, id)
    else
      batch.target = target
      batch.waiting[#batch.waiting + 1] = id
    end
    batch.ready = batch.ready or not held
  else
    --- paste push_job(target, id, options)
    mark_ready(KEYS.marker, held)
  end
  --- else
  --- paste push_job(target, id, options)
  mark_ready(KEYS.marker, held)
  --- end
  emit_capped(KEYS.events, cap, 'waiting', 'jobId', id)
  return finish_add(id, job)
end
