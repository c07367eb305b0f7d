--- keys: parent, pending (its children)
--- args: queue (of the parent), id (of the parent), now
--- include call
--- include parent_release

--- paste release_unless_pending(queue = ARGV.queue, parent = KEYS.parent, pending = KEYS.pending,
---   id = ARGV.id, now = ARGV.now)
return nil
