--- needs: KEYS.nodes, ARGV.base
--- include call
--- include relay_clock
--- include relay_keys
--- include relay_index

-- specs/06-later-versions.md#sec-4-14, the rules refresh, remove and prune: keys live as long as the last lease, and
-- what messages need as long as the last message that is retained.
local leaving, started, retained = ARGV.base .. ':cleanup', ARGV.base .. ':started', ARGV.base .. ':retained'

local function refresh(now)
  local last = last_score(KEYS.nodes)
  if last > now then
    --@nodes-live
    call('PEXPIREAT', KEYS.nodes, last)
    call('PEXPIREAT', started, last)
    call('PEXPIREAT', subscriptions, last)
    call('PEXPIREAT', leaving, last)
  else
    --@no-node-lives
    call('UNLINK', KEYS.nodes, started, subscriptions, leaving)
  end
  last = math.max(last, last_score(retained))
  local counter, layout = ARGV.base .. ':mid', ARGV.base .. ':layout'
  if last > now then
    --@in-use
    call('PEXPIREAT', counter, last)
    call('PEXPIREAT', layout, last)
  else
    --@unused
    call('UNLINK', counter, layout)
  end
end

local function remove(node, now)
  local removed = call('ZREM', KEYS.nodes, node)
  call('ZREM', started, node)
  call('UNLINK', inbox_of(node), record_of(node))
  if count_beginning_with('n|' .. node .. '|') > 0 then
    --@subscriptions-left
    call('ZADD', leaving, now, node)
  end
  return removed
end

-- Gives what it cost.
local function prune(node, budget)
  local members = beginning_with('n|' .. node .. '|', 'LIMIT', '0', budget)
  drop(members)
  if #members < budget then
    --@pruned
    call('ZREM', leaving, node)
  else
    --@prune-again
  end
  return math.max(#members, 1)
end

local function prune_all(budget)
  while budget > 0 do
    local node = call('ZRANGE', leaving, '0', '0')[1]
    if not node then
      --@all-pruned
      return
    end
    budget = budget - prune(node, budget)
  end
end
