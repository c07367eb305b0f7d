--- include call
--- include parent_release

local function release_unless_pending(queue, parent, pending, id, now)
  --- paste release_unless_pending(queue, parent, pending, id, now)
end
