--- step: queue, parent, pending, id, now

-- specs/06-later-versions.md#sec-4-9-3
if call('HEXISTS', parent, 'flowAttachmentFailed') == 1 then
  --@attachment-failed
  call('HDEL', parent, 'flowAttachmentFailed')
elseif call('SCARD', pending) == 0 then
  --@no-child-pending
  release_parent(queue, parent, id, now)
else
  --@child-pending
end
