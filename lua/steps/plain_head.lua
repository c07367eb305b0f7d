--- step: head

-- As a condition: a plain job to add has no parent and no scheduler.
type(head.base) == 'string' and type(head.id) == 'string' and head.parent == nil and head.pending == nil
and not head.scheduler
