--- step: job_id, other_id, events, cap, dedup_id

-- specs/01-data-model-and-adding.md#sec-6-4 and specs/06-later-versions.md#sec-11-2: a job gave way to another one.
--- when debounced_event
emit_capped(events, cap, 'debounced', 'jobId', job_id, 'debounceId', dedup_id)
--- end
emit_capped(events, cap, 'deduplicated', 'jobId', job_id, 'deduplicationId', dedup_id, 'deduplicatedJobId',
  other_id)
