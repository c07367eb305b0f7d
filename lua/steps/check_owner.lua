--- step: rule, key, id, base, delayed, events, cap, dedup_id

-- specs/06-later-versions.md#sec-11-2, steps 1b and 2b: what is looked at when a key has an owner.
--- paste repair_key(key, base, dedup_id, own = claim(id))
--- when keep_last_if_active
if keeps and load_keep_next()(dedup_id, id, owner, options) then
  --@kept-for-later
  report(owner, id)
  --- paste answer_owner(rule, base, delayed, events, cap)
end
--- end
