--- include call

-- specs/01-data-model-and-adding.md#sec-5-2: one entry of the event stream, not trimmed.
local function emit(stream, ...)
  call('XADD', stream, '*', 'event', ...)
end
