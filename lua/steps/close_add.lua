--- step: id, cap, held
--- needs: KEYS.events, KEYS.marker

-- specs/01-data-model-and-adding.md#sec-7-2 and #sec-7-4: a plain job is ready to be taken.
if not held then
  --@ready
  call('ZADD', KEYS.marker, '0', '0')
end
call('XADD', KEYS.events, 'MAXLEN', '~', cap, '*', 'event', 'waiting', 'jobId', id)
return id .. ''
