--- step: name, data, options, timestamp, delay, priority

-- specs/01-data-model-and-adding.md#sec-6-3, as arguments of HMSET: what each job has. options: their JSON text.
'name', name, 'data', data, 'opts', options, 'timestamp', timestamp, 'delay', delay, 'priority', priority
