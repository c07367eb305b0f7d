--- keys: nodes (not used)
--- args: base, node, cursor, count
--- include call
--- include relay_keys

-- specs/06-later-versions.md#sec-4-14
local record, cursor = record_of(ARGV.node), ARGV.cursor
if call('EXISTS', record) == 0 then
  --@unknown
  return nil
end
local found = call('XREAD', 'COUNT', ARGV.count, 'STREAMS', inbox_of(ARGV.node), cursor)
local latest = cursor
if found then
  --@entries
  local entries = found[1][2]
  latest = entries[#entries][1]
else
  --@none
end
call('HSET', record, 'cursor', cursor, 'inFlight', latest)
return found
