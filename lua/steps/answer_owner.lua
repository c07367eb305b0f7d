--- step: rule, base, delayed, events, cap

-- specs/06-later-versions.md#sec-11-2, step 3, and what deduplicate gives for a job that is not added.
--- when reschedule
--- unless flow_node
if rule.reschedule and call('ZSCORE', delayed, owner) then
  --@rescheduled
  local delay = tonumber(options.delay) or 0
  call('HSET', base .. owner, 'delay', delay)
  load_place_delayed()(delayed, base .. 'marker', events, cap, owner, born_at, delay)
end
--- end
--- end
return owner
