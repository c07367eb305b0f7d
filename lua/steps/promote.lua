--- step: base, now, paused, held
--- needs: KEYS.delayed, KEYS.paused, KEYS.wait

-- specs/02-worker-path.md#w4: promotes what is due. Gives promoted, at most 1,000.
local promoted = 0
if call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
  local target = paused and KEYS.paused or KEYS.wait
  promoted = load_promote_due()(base, now, target, held)
end
