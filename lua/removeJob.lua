--- keys: job, repeat
--- args: id, with children (1), base prefix
--- include call
--- include split_job_key
--- include remove_tree
--- include scheduler_current

-- specs/03-transitions-admin-getters.md#sec-8-1, step 2: only pending children are looked at.
local with_children = ARGV[2] == '1'
local function has_lock(base, id)
  local job = base .. id
  if call('GET', job .. ':lock') then
    --@lock
    return true
  end
  if with_children then
    for _, child in ipairs(call('SMEMBERS', job .. ':dependencies')) do
      if has_lock(split_job_key(child)) then
        --@lock-below
        return true
      end
    end
  end
  return false
end

if is_current_iteration(KEYS[1], ARGV[1], KEYS[2]) then
  --@scheduler
  return -8
end
if has_lock(ARGV[3], ARGV[1]) then
  --@locked
  return 0
end
remove_tree(ARGV[3], ARGV[1], nil, with_children)
--@removed
return 1
