--- step: base, now, paused, held
--- needs: KEYS.delayed, KEYS.wait
--- unless waiting_layout v6
--- needs: KEYS.paused
--- end

-- specs/02-worker-path.md#w4: promotes what is due. Gives promoted, at most 1,000.
local promoted = 0
if call('ZRANGEBYSCORE', KEYS.delayed, '0', (now + 1) * 4096 - 1, 'LIMIT', '0', '1')[1] then
  --- when waiting_layout v6
  local target = KEYS.wait
  --- else
  --- paste target_list(paused, wait = KEYS.wait, set_aside = KEYS.paused)
  --- end
  promoted = load_promote_due()(base, now, target, held)
end
