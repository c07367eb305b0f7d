--- keys: key (of the deduplication id)
--- args: id
--- include call

-- specs/06-later-versions.md#sec-4-2-7: a job gives up its own deduplication key.
if call('GET', KEYS.key) == ARGV.id then
  --@given-up
  return call('DEL', KEYS.key)
end
--@not-owned
return 0
