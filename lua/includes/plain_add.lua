--- include call

-- A plain job to add has no parent, no scheduler and no deduplication, and its id is given to it or free. An id that the
-- counter or the settings take first is not free.
local function is_plain_add(head, options, counter, meta)
  local base, id = head[1], head[2]
  if type(options) ~= 'table' or type(base) ~= 'string' or type(id) ~= 'string' or head[5] ~= nil or head[6] ~= nil
    or head[8] or options.de then
    return false
  end
  local job = base .. id
  return id == '' or (job ~= counter and job ~= meta and call('EXISTS', job) == 0)
end

-- specs/01-data-model-and-adding.md#sec-6-2 and #sec-6-3. sequence: the number counted for the job. Gives its id.
local function store_plain(head, options, data, sequence, events)
  local id = head[2]
  local job = head[1] .. id
  if id == '' then
    --@generated-id
    id = sequence
    job = job .. id
    if math.abs(id) < 100000000000000 then
      -- both text forms are the same here (specs/01-data-model-and-adding.md#sec-2-6), and text is cheaper to pass on
      id = id .. ''
    end
  else
    --@custom-id
  end
  call('HMSET', job, 'name', head[3], 'data', data, 'opts', cjson.encode(options), 'timestamp', head[4], 'delay',
    options.delay or '0', 'priority', options.priority or '0')
  call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', head[3])
  return id
end
