--- keys: meta, active
--- args:
--- include call
--- include queue_gate

-- specs/02-worker-path.md#8.2: nil when it is not.
return is_held(false, call('HGET', KEYS[1], 'concurrency'), KEYS[2])
