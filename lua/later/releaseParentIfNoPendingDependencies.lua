--- keys: parent, pending (its children)
--- args: queue (of the parent), id (of the parent), now
--- include call
--- include parent_release

-- specs/06-later-versions.md#sec-4-9-3
if call('HEXISTS', KEYS.parent, 'flowAttachmentFailed') == 1 then
  --@attachment-failed
  call('HDEL', KEYS.parent, 'flowAttachmentFailed')
elseif call('SCARD', KEYS.pending) == 0 then
  --@no-child-pending
  release_parent(ARGV.queue, KEYS.parent, ARGV.id, ARGV.now)
else
  --@child-pending
end
return nil
