--- step:

-- specs/06-later-versions.md#sec-11-13: whether the budget of a call of obliterate is used up is told at once.
local wait = base .. 'wait'
if empty_list(wait, call('LRANGE', wait, '0', budget - 1)) then
  --@most-bytes
  return 1
end
