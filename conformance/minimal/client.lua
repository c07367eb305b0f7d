-- What goes to the scripts and what comes back. ARGV: the line of a request, the moment in ms, a token.
local request, now, token = cjson.decode(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local args = request.args
local base = 'bull:' .. args.queue .. ':'

local function keys(...)
  local made = {}
  for place, name in ipairs({ ... }) do
    made[place] = base .. name
  end
  return made
end

local function text(number)
  return string.format('%.0f', number)
end

local function fields(flat)
  local made = {}
  for place = 1, #flat, 2 do
    made[flat[place]] = flat[place + 1]
  end
  return made
end

local calls = {}

function calls.add()
  -- specs/01 section 7.1: an array of nine, here four and five times nil.
  local job = '\153' .. cmsgpack.pack(base, args.opts.jobId or '', args.name, now, nil, nil, nil, nil, nil)
  args.opts.attempts = args.opts.attempts or 0
  return scripts.addStandardJob(
    keys('wait', 'paused', 'meta', 'id', 'completed', 'delayed', 'active', 'events', 'marker'),
    { job, cjson.encode(args.data), cmsgpack.pack(args.opts) }
  )
end

function calls.take()
  local reply = scripts.moveToActive(
    keys('wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc', 'marker'),
    { base, text(now), cmsgpack.pack({ token = token, lockDuration = 30000 }) }
  )
  if type(reply[1]) ~= 'table' then
    return cjson.null
  end
  local job = fields(reply[1])
  return { id = reply[2], token = token, name = job.name, data = cjson.decode(job.data) }
end

function calls.finish()
  local options = {
    token = args.token, keepJobs = { count = -1 }, lockDuration = 30000, attempts = 0, maxMetricsSize = '',
    fpof = false, cpof = false, idof = false, rdof = false,
  }
  local names = { 'wait', 'active', 'prioritized', 'events', 'stalled', 'limiter', 'delayed', 'paused', 'meta', 'pc' }
  local all = keys(unpack(names))
  for _, name in ipairs({ 'completed', args.id, 'metrics:completed', 'marker' }) do
    all[#all + 1] = base .. name
  end
  local value = cjson.encode(args.value)
  local reply = scripts.moveToFinished(
    all, { args.id, text(now), 'returnvalue', value, 'completed', '0', base, cmsgpack.pack(options), '' }
  )
  return type(reply) == 'number' and reply < 0 and reply or cjson.null
end

local result = calls[request.call]()
local answer = { n = request.n }
if type(result) == 'number' and result < 0 then
  answer.error, answer.code = 'the script refuses', result
else
  answer.result = result
end
return cjson.encode(answer)
