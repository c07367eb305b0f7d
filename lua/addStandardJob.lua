--- keys: wait, paused, meta, id, completed, delayed, active, events, marker
--- args: job (MessagePack array), data (JSON), options (MessagePack map)
--- include adding_settings
--- include call
--- include plain_add
--- lazy add_standard: open_job, add_standard

-- specs/01-data-model-and-adding.md#sec-7-2. What other jobs than plain ones need is not even made for these.
local head, options = cmsgpack.unpack(ARGV.job), cmsgpack.unpack(ARGV.options)
if not is_plain_add(head, options, KEYS.id, KEYS.meta) then
  --@not-plain
  local open_job, add_standard = load_add_standard()
  open_job(head, ARGV.data)
  return add_standard(options)
end

--- paste open_add(head, options)
--- paste target_list(paused = settings.paused, wait = KEYS.wait, set_aside = KEYS.paused)
--- paste push_job(target, id, options)
--- paste close_add(id, cap, held)
