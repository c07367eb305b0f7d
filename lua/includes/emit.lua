--- include call

-- specs/01-data-model-and-adding.md#5.2: one entry of the event stream, not trimmed.
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end

-- The same with approximate trimming to the event cap.
local function emit_capped(stream, cap, ...)
  call('XADD', stream, 'MAXLEN', '~', cap, '*', 'event', ...)
end
