-- Bytes of fetched jobs so far in this call, and 2,000 for each job that retention removed: what a call of several jobs
-- is bounded by.
local fetched_bytes = 0
