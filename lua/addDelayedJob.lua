--- keys: marker, meta, id, delayed, completed, events
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include add_job
--- include add_delayed

-- specs/01-data-model-and-adding.md#sec-7-3
open_job(cmsgpack.unpack(ARGV[1]), ARGV[2])
return add_delayed(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], ARGV[3])
