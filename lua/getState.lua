--- keys: completed, failed, delayed, active, wait, paused, waiting-children, prioritized
--- args: id
--- include call
--- include find_state

-- specs/03-transitions-admin-getters.md#sec-9-4: for servers without LPOS.
return find_state(ARGV[1], function(list, id)
  for _, other in ipairs(call('LRANGE', list, 0, -1)) do
    if other == id then
      --@found
      return true
    end
  end
  return false
end)
