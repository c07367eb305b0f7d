--- step: key, base, dedup_id, own

-- specs/06-later-versions.md#l4: the key of a job that is gone is taken over by own, and the new one is added.
--- when stale_key_repair
if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
  --@repaired
  call('DEL', key)
  call('DEL', base .. 'dn:' .. dedup_id)
  own
  return nil
end
--- end
