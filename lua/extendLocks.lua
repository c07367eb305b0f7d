--- keys: stalled
--- args: base prefix, tokens (MessagePack array), ids (MessagePack array), duration
--- include renew_lock

-- specs/02-worker-path.md#sec-7-2
local tokens, ids = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
local lost = {}
for index = 1, #ids do
  local id = ids[index]
  if not renew_lock(ARGV[1] .. id .. ':lock', tokens[index], ARGV[4], KEYS[1], id) then
    lost[#lost + 1] = id
  end
end
return lost
