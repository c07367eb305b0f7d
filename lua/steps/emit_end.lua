--- step: events, id, outcome, field, result, has_failed, attempts, allowed, text, has_event, count

-- specs/02-worker-path.md#sec-5, steps 14 and 15. text: that of the attempts. with maybe_emitted: the first event may
-- be there already. with counted: count is the number of events.
--- when maybe_emitted
if not has_event then
  call('XADD', events,
    --- paste end_event(id, outcome, field, result)
  )
end
--- else
call('XADD', events,
  --- paste end_event(id, outcome, field, result)
)
--- end
--- when counted
count = count + 1
--- end
if has_failed and attempts >= allowed then
  --@exhausted
  call('XADD', events, '*', 'event', 'retries-exhausted', 'jobId', id, 'attemptsMade', text)
  --- when counted
  count = count + 1
  --- end
end
