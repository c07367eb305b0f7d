--- step: key, id, base, dedup_id

-- specs/06-later-versions.md#l4: the key of a job that is gone is taken over, and the new one is added.
--- when stale_key_repair
if call('EXISTS', base .. owner) == 0 and call('PTTL', key) == -1 then
  --@repaired
  call('DEL', key)
  call('DEL', base .. 'dn:' .. dedup_id)
  claim(id)
  return nil
end
--- end
