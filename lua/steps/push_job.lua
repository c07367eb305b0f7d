--- step: target, id, options

-- specs/01-data-model-and-adding.md#sec-7-2: to the end that is taken last, or first.
if options.lifo then
  --@lifo
  call('RPUSH', target, id)
else
  --@fifo
  call('LPUSH', target, id)
end
