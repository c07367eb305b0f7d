--- include call

-- specs/06-later-versions.md#sec-4-14: makes an inbox shorter. over: by how many entries; position: up to where they
-- were read. Gives how many of those that went were never read, which may be negative.
local function trim_unread(inbox, limit, position, over)
  local seen = 0
  if position ~= '0-0' and position ~= '0' then
    --@position
    seen = #call('XRANGE', inbox, '-', position, 'COUNT', over)
  end
  return call('XTRIM', inbox, 'MAXLEN', limit) - seen
end
