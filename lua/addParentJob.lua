--- keys: meta, id, delayed, waiting_children, completed, events
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- flags: flow_node
--- include add_job
--- include event_cap

-- specs/01-data-model-and-adding.md#sec-7-5
open_job(cmsgpack.unpack(ARGV.job), ARGV.data)
local options = cmsgpack.unpack(ARGV.options)
--- paste add_parent(options, found_cap = event_cap(KEYS.meta))
