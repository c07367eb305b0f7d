--- keys: meta, base
--- args: budget (jobs per call), force (or empty)
--- include call
--- include erase_job
--- include remove_members

local base = KEYS.base
local budget = tonumber(ARGV.budget)

local function spend(count)
  budget = budget - count
  return budget <= 0
end

local function erase_all(ids)
  for _, id in ipairs(ids) do
    erase_job(base, id)
  end
end

-- Each gives whether the budget is used up.
local function empty_set(name)
  local set = base .. name
  local ids = call('ZRANGE', set, '0', budget - 1)
  erase_all(ids)
  remove_members(set, ids)
  return spend(#ids)
end

local function empty_list(list, ids)
  erase_all(ids)
  call('LTRIM', list, #ids, '-1')
  return spend(#ids)
end

-- specs/03-transitions-admin-getters.md#sec-7-4
if call('HEXISTS', KEYS.meta, 'paused') == 0 then
  --@not-paused
  return -1
end
local active = base .. 'active'
local running = call('LRANGE', active, '0', budget - 1)
if running[1] and ARGV.force == '' then
  --@active-jobs
  return -2
end
for _, id in ipairs(running) do
  --@unlocked
  call('DEL', base .. id .. ':lock')
end
if empty_list(active, running) then
  --@most-bytes-active
  return 1
end
if empty_set('delayed') then
  --@most-bytes-delayed
  return 1
end

local schedulers = call('ZRANGE', base .. 'repeat', '0', budget - 1)
for _, scheduler in ipairs(schedulers) do
  --@scheduler
  call('DEL', base .. 'repeat:' .. scheduler)
end
remove_members(base .. 'repeat', schedulers)
if spend(#schedulers) then
  --@most-bytes-schedulers
  return 1
end

if empty_set('completed') then
  --@most-bytes-completed
  return 1
end
--- when waiting_layout v6
--- paste empty_wait()
--- elsewhen merging_pause
--- paste empty_wait()
--- end
local paused = base .. 'paused'
if empty_list(paused, call('LRANGE', paused, '0', budget - 1)) then
  --@most-bytes-paused
  return 1
end
if empty_set('prioritized') then
  --@most-bytes-prioritized
  return 1
end
if empty_set('failed') then
  --@most-bytes-failed
  return 1
end

--@finished
call('DEL', base .. 'events', base .. 'delay', base .. 'stalled-check', base .. 'stalled', base .. 'id', base .. 'pc',
  --- when obliterate_marker
  base .. 'marker',
  --- end
  base .. 'meta', base .. 'metrics:completed', base .. 'metrics:completed:data', base .. 'metrics:failed',
  base .. 'metrics:failed:data')
return 0
