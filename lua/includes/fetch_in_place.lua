--- include call
--- include fetch_next

--- paste pop_after_finish()

-- specs/06-later-versions.md#sec-11-7: takes the place of a job that has left active.
local function fetch_in_place(base, now, options)
  return fetch_next(base, now, options, nil, pop_after_finish)
end
