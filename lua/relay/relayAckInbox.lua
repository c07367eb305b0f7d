--- keys: nodes (not used)
--- args: base, node, cursor
--- include call
--- include relay_keys

-- specs/06-later-versions.md#sec-4-14
local record = record_of(ARGV.node)
if call('EXISTS', record) == 1 then
  --@known
  call('HSET', record, 'cursor', ARGV.cursor)
else
  --@unknown
end
return 1
