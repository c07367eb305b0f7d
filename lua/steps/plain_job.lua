--- step: stored

-- As a condition: a plain job that ends is there, has no parent, and is no owner of a deduplication key.
stored.name and not (stored.parent_key or stored.parent or stored.dedup_id)
