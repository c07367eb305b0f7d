--- keys: marker, meta, id, prioritized, delayed, completed, active, events, pc
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include add_job
--- include add_prioritized

-- specs/01-data-model-and-adding.md#sec-7-4
open_job(cmsgpack.unpack(ARGV[1]), ARGV[2])
local options = cmsgpack.unpack(ARGV[3])
return add_prioritized(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], options)
