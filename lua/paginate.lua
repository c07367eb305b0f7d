--- keys: set or hash
--- args: first, last or -1, cursor, elements passed, most scans, anything to fetch the hashes
--- include call

-- specs/03-transitions-admin-getters.md#sec-9-9
local key, first, last, cursor = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local at, scans, with_hashes = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] ~= nil

local kind, scan, total, width = call('TYPE', key).ok, nil, nil, nil
if kind == 'none' then
  --@nothing
  return { 0, 0, {}, 0 }
elseif kind == 'set' then
  --@set
  scan, total, width = 'SSCAN', call('SCARD', key), 1
elseif kind == 'hash' then
  --@hash
  scan, total, width = 'HSCAN', call('HLEN', key), 2
else
  --@other-type
  return redis.error_reply('Pagination is only supported for sets and hashes.')
end
if last == -1 then
  --@to-the-end
  last = total
end
local stop = last + 1
local page, hashes = {}, {}

local function take(found, index)
  local name = found[index]
  page[#page + 1] = width == 1 and name or { name, found[index + 1] }
  if with_hashes then
    --@hash-fetched
    hashes[#hashes + 1] = call('HGETALL', name)
  end
end

-- Gives whether the page may go on behind these elements.
local function walk(found)
  local count = #found / width
  if count > 0 and at + count < first then
    --@before
    at = at + count
    return true
  end
  if count == 0 or at > stop then
    --@behind
    return false
  end
  for index = 1, #found, width do
    if at >= stop then
      --@full
      return false
    end
    if at >= first then
      --@taken
      take(found, index)
    end
    at = at + 1
  end
  return true
end

repeat
  local reply = call(scan, key, cursor, 'COUNT', '100')
  cursor = reply[1]
  scans = scans - 1
until not walk(reply[2]) or cursor == '0' or scans <= 0
return { cursor, at, page, total, hashes }
