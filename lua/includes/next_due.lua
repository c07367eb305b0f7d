--- include call

-- specs/02-worker-path.md#w3: ms, with the sequence number as a fraction; nil if nothing is delayed.
local function next_due(delayed)
  local score = call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  return score and score / 4096
end
