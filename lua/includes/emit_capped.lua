--- include call

-- specs/01-data-model-and-adding.md#5.2: one entry of the event stream, trimmed approximately to the event cap.
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
