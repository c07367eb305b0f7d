--- step: rule, key, id, base, delayed, events, dedup_id

-- specs/01-data-model-and-adding.md#sec-6-4 and specs/06-later-versions.md#sec-11-2, mode replace. A node of a flow
-- replaces nothing since 5.70.4. owner has to be there.
if rule.replace then
  owner = call('GET', key)
  if not owner then
    --@free
    claim(id)
    return nil
  end
  if call('ZREM', delayed, owner) == 0 then
    --@not-delayed
    --- paste repair_key(key, base, dedup_id, own = claim(id))
    --- when keep_last_if_active
    if keeps and load_keep_next()(dedup_id, id, owner, options) then
      --@kept-for-later
      report(owner, id)
    end
    --- end
    return owner
  end
  purge(base .. owner)
  emit(events, 'removed', 'jobId', owner, 'prev', 'delayed')
  report(id, owner)
  --- when stale_key_repair
  call('DEL', base .. 'dn:' .. dedup_id)
  --- end
  --- when keep_last_if_active
  if not keeps and not rule.extend and ttl and ttl > 0 then
  --- else
  if timed and not rule.extend then
  --- end
    --@keep-ttl
    call('SET', key, id, 'KEEPTTL')
  else
    --@reset-ttl
    claim(id)
  end
  return nil
end
