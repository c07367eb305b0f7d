--- include call

-- Counts several numbers at once and gives the last. Where the server refuses, or a number is not exact in Lua, nothing
-- is counted and nil given: each number is then to be counted on its own.
local function count_together(counter, count)
  local last = redis.pcall('INCRBY', counter, count)
  if type(last) ~= 'number' then
    return nil
  end
  if math.abs(last) > 4503599627370496 then
    call('DECRBY', counter, count)
    return nil
  end
  return last
end
