--- include call

-- specs/02-worker-path.md#w17: one point per minute, newest first, at most size points.
local function record_metric(hash, size, now)
  local finished_before = call('HINCRBY', hash, 'count', 1) - 1
  local previous = call('HGET', hash, 'prevTS')
  if not previous then
    --@first
    call('HSET', hash, 'prevTS', now, 'prevCount', 0)
    return
  end
  local minutes = math.min(math.floor(now / 60000) - math.floor(previous / 60000), tonumber(size))
  if minutes <= 0 then
    --@same-minute
    return
  end

  local list = hash .. ':data'
  local points = { finished_before - call('HGET', hash, 'prevCount') }
  for _ = 2, minutes do
    --@skipped-minute
    if #points == 7000 then
      --@batch
      call('LPUSH', list, unpack(points))
      points = {}
    end
    points[#points + 1] = 0
  end
  call('LPUSH', list, unpack(points))
  call('LTRIM', list, 0, size - 1)
  --@point
  call('HSET', hash, 'prevCount', finished_before, 'prevTS', now)
end
