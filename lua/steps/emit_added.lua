--- step: events, id, name

-- specs/01-data-model-and-adding.md#sec-6-3
call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
