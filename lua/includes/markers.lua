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

-- specs/02-worker-path.md#w3: ms with the sequence number as a fraction, or nil.
local function next_due(delayed)
  local score = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  return score and score / 4096
end

local function mark_later(marker, delayed)
  local due = next_due(delayed)
  if due then
    --@later
    call('ZADD', marker, due, '1')
  end
end
