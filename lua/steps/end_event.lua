--- step: id, outcome, field, result

-- specs/02-worker-path.md#sec-5, step 14, as arguments of XADD.
'*', 'event', outcome, 'jobId', id, field, result, 'prev', 'active'
