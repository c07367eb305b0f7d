--- include call

-- specs/01-data-model-and-adding.md#sec-6-3. encoded: the JSON texts of options that several jobs share, or nil.
--- when keep_last_if_active
-- link_text: the JSON text of link where that is known.
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded, link_text)
--- else
local function store_job(events, job, id, name, data, born_at, options, parent, link, scheduler, encoded)
--- end
  --- when batch
  local text = encoded and encoded[options]
  if not text then
    text = cjson.encode(options)
    if encoded then
      encoded[options] = text
    end
  end
  --- else
  local text = cjson.encode(options)
  --- end
  local fields = {
    --- paste job_fields(name, data, options = text, timestamp = born_at, delay = (options.delay or '0'),
    ---   priority = (options.priority or '0'))
  }
  local count = 12
  if parent ~= nil then
    --@parent
    --- when keep_last_if_active
    if link_text == nil then
      link_text = cjson.encode(link)
    end
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', link_text
    --- else
    fields[13], fields[14], fields[15], fields[16] = 'parentKey', parent, 'parent', cjson.encode(link)
    --- end
    count = 16
  end
  if scheduler then
    --@scheduler
    fields[count + 1], fields[count + 2] = 'rjk', scheduler
    count = count + 2
  end
  local rule = options.de
  if rule and rule.id then
    --@dedup-id
    fields[count + 1], fields[count + 2] = 'deid', rule.id
    count = count + 2
  end
  call('HMSET', job, unpack(fields, 1, count))
  --- paste emit_added(events, id, name)
end
