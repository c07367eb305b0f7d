--- keys: limiter, meta
--- args: maximum, 0 for none
--- include call
--- include rate_limit

-- specs/02-worker-path.md#8.1
local maximum = ARGV[1]
if maximum == '0' then
  maximum = call('HGET', KEYS[2], 'max')
  if not maximum then
    --@bare-ttl
    return call('PTTL', KEYS[1])
  end
  --@global-maximum
else
  --@given-maximum
end
return limited_for(KEYS[1], tonumber(maximum))
