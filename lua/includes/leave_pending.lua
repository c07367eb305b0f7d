--- include call
--- include split_job_key

-- specs/03-transitions-admin-getters.md#s15, steps 1 and 2.
-- Takes the child out of the pending set. Gives prefix and id of a parent that has left waiting-children.
local function leave_pending(parent, child)
  local pending = parent .. ':dependencies'
  if call('SREM', pending, child) == 0 then
    --@not-linked
    return nil
  end
  if call('SCARD', pending) > 0 then
    --@others-pending
    return nil
  end
  local base, id = split_job_key(parent)
  if call('ZREM', base .. 'waiting-children', id) == 0 then
    --@parent-not-waiting
    return nil
  end
  --@last
  return base, id
end
