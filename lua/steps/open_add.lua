--- step: head, options
--- needs: KEYS.active, KEYS.events, KEYS.id, KEYS.meta, ARGV.data

-- specs/01-data-model-and-adding.md#sec-7-2 and #sec-7-4: counts and stores a plain job. Gives settings, cap, id, held.
local sequence = call('INCR', KEYS.id)
local settings = call('HMGET', KEYS.meta, 'opts.maxLenEvents', 'paused', 'concurrency')
local cap, held = settings.cap, settings.paused
if not cap then
  --@default-cap
  cap = '10000'
  call('HSET', KEYS.meta, 'opts.maxLenEvents', cap)
end
local id = store_plain(head, options, ARGV.data, sequence, KEYS.events)
if settings.concurrency and not held then
  --@concurrency
  held = call('LLEN', KEYS.active) >= tonumber(settings.concurrency)
end
