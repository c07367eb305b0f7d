--- include call

-- Tells whether a list holds an id. A server without LPOS has it read.
local function is_active(active, id)
  local place = redis.pcall('LPOS', active, id)
  if type(place) ~= 'table' then
    --@by-place
    return place ~= false
  end
  for _, other in ipairs(call('LRANGE', active, '0', '-1')) do
    if other == id then
      --@by-reading
      return true
    end
  end
  --@not-there
  return false
end
