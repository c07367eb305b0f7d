--- step:

-- specs/06-later-versions.md#sec-11-2: what deduplicate gives for a job that is not added.
--- when reschedule
--- unless flow_node
reschedule(owner)
--- end
--- end
return owner
