--- keys: completed, failed, delayed, active, wait, paused, waiting-children, prioritized
--- args: id
--- include call
--- include find_state

-- specs/03-transitions-admin-getters.md#9.4
return find_state(ARGV[1], function(list, id)
  return call('LPOS', list, id)
end)
