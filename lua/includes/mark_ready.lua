--- include call

-- specs/02-worker-path.md#w2
local function mark_ready(marker, held)
  if held then
    --@held
    return
  end
  --@ready
  call('ZADD', marker, 0, '0')
end
