--- include call
--- include parent_release

-- specs/06-later-versions.md#sec-4-9-3
local function release_unless_pending(queue, parent, pending, id, now)
  if call('HEXISTS', parent, 'flowAttachmentFailed') == 1 then
    --@attachment-failed
    call('HDEL', parent, 'flowAttachmentFailed')
  elseif call('SCARD', pending) == 0 then
    --@no-child-pending
    release_parent(queue, parent, id, now)
  else
    --@child-pending
  end
end
