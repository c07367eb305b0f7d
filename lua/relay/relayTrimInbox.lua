--- keys: nodes (not used)
--- args: base, node, cursor, limit
--- include call
--- include each_batch
--- include relay_keys
--- include relay_unread

-- specs/06-later-versions.md#sec-4-14
local record, inbox, cursor = record_of(ARGV.node), inbox_of(ARGV.node), ARGV.cursor
local is_known = call('EXISTS', record) == 1
if is_known then
  --@known
  call('HSET', record, 'cursor', cursor)
else
  --@unknown
end
if cursor ~= '0-0' and cursor ~= '0' then
  --@cursor
  local ids = {}
  for index, entry in ipairs(call('XRANGE', inbox, '-', cursor, 'COUNT', '10000')) do
    ids[index] = entry[1]
  end
  each_batch(ids, function(...)
    call('XDEL', inbox, ...)
  end)
end
local over, unread = call('XLEN', inbox) - ARGV.limit, 0
if over > 0 then
  --@full
  unread = trim_unread(inbox, ARGV.limit, call('HGET', record, 'inFlight') or cursor, over)
end
local length = call('XLEN', inbox)
if is_known then
  call('HSET', record, 'backlog', length)
  if unread > 0 then
    --@dropped
    call('HINCRBY', record, 'dropped', unread)
  end
end
return length
