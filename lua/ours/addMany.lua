--- keys: wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc
--- args: kind (0 standard, 1 delayed, 2 prioritized), job (MessagePack array), data (JSON), options (MessagePack map) ...
--- include each_alone
--- include add_job
--- include add_delayed
--- include add_prioritized
--- include add_standard
--- include mark_later

-- specs/08-batches.md#add-many. Not one of BullMQ's scripts.
local count = #ARGV / 4
many = {
  settings = nil, waiting = {}, target = nil, ready = false, due_key = nil, marker = KEYS[9], encoded = {}, options = {},
  reserved = 0, last = 0, run = 1,
}

-- Jobs that take a number for sure take it together with those that follow directly.
local heads, runs = {}, { [count + 1] = 0 }
for number = count, 1, -1 do
  local at = 4 * number
  local readable, head = pcall(cmsgpack.unpack, ARGV[at - 2])
  heads[number] = readable and head
  local text = ARGV[at]
  if many.options[text] == nil then
    local known, options = pcall(cmsgpack.unpack, text)
    if known and type(options) == 'table' then
      many.options[text] = options
    end
  end
  local sure = readable and type(head) == 'table' and head[5] == nil and many.options[text]
  runs[number] = sure and runs[number + 1] + 1 or 0
end

-- what waits for the end of the call, in the order of its effects
function many.flush()
  local waiting = many.waiting
  if waiting[1] then
    call('LPUSH', many.target, unpack(waiting))
    many.waiting = {}
  end
  if many.due_key then
    mark_later(many.marker, many.due_key)
    many.due_key = nil
  end
end

local function add(number)
  local at = 4 * number
  local kind, options = ARGV[at - 3], ARGV[at]
  open_job(heads[number] or cmsgpack.unpack(ARGV[at - 2]), ARGV[at - 1])
  many.run = math.max(1, runs[number])
  if kind == '0' then
    options = many.options[options] or cmsgpack.unpack(options)
    return add_standard(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], options)
  end
  if kind == '1' then
    return add_delayed(KEYS[9], KEYS[3], KEYS[4], KEYS[6], KEYS[5], KEYS[8], options)
  end
  options = many.options[options] or cmsgpack.unpack(options)
  return add_prioritized(KEYS[9], KEYS[3], KEYS[4], KEYS[10], KEYS[6], KEYS[5], KEYS[7], KEYS[8], KEYS[11], options)
end

local replies = {}
for number = 1, count do
  replies[number] = alone_or_error(add, number)
end
many.flush()
if many.ready then
  call('ZADD', KEYS[9], '0', '0')
end
return replies
