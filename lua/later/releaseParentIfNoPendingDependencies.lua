--- keys: parent, pending (its children)
--- args: queue (of the parent), id (of the parent), now
--- include release_unless_pending

release_unless_pending(ARGV.queue, KEYS.parent, KEYS.pending, ARGV.id, ARGV.now)
return nil
