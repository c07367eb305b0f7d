--- include job_head
--- include call

-- A plain job to add has no parent, no scheduler and no deduplication, and its id is given to it or free. An id that
-- the counter or the settings take first is not free.
local function is_plain_add(head, options, counter, meta)
  if type(options) ~= 'table' or options.de or not (
    --- paste plain_head(head)
  ) then
    return false
  end
  local job = head.base .. head.id
  return head.id == '' or (job ~= counter and job ~= meta and call('EXISTS', job) == 0)
end

-- specs/01-data-model-and-adding.md#sec-6-2 and #sec-6-3. sequence: the number counted for the job. Gives its id.
local function store_plain(head, options, data, sequence, events)
  local id = head.id
  local job = head.base .. id
  if id == '' then
    --@generated-id
    id = sequence
    job = job .. id
    --- paste text_id(id)
  else
    --@custom-id
  end
  call('HMSET', job,
    --- paste job_fields(name = head.name, data, options = cjson.encode(options), timestamp = head.timestamp,
    ---   delay = (options.delay or '0'), priority = (options.priority or '0'))
  )
  --- paste emit_added(events, id, name = head.name)
  return id
end
