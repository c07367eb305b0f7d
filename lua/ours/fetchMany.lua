--- keys: wait, active, prioritized, events, stalled (not used), limiter, delayed, paused, meta, pc, marker
--- args: base prefix, now, options (MessagePack map), tokens (MessagePack array)
--- include fetch_next
--- include take_first

-- specs/08-batches.md#fetch-many. Not one of BullMQ's scripts.
local MOST_SPENT = 1000000
local options, tokens = cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4])
local replies = {}
for number = 1, #tokens do
  local reply = fetch_next(ARGV[1], ARGV[2], options, tokens[number], KEYS[11], take_first) or { 0, 0, 0, 0 }
  replies[number] = reply
  if reply[2] == 0 or spent > MOST_SPENT then
    break
  end
end
return replies
