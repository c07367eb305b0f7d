--- include call
--- include next_due

-- specs/02-worker-path.md#w3
local function mark_delayed(marker, delayed)
  local due = next_due(delayed)
  if due then
    --@due
    call('ZADD', marker, due, '1')
  end
end
