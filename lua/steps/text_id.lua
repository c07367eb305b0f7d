--- step: id

-- Both text forms are the same here (specs/01-data-model-and-adding.md#sec-2-6), and text is cheaper to pass on.
if math.abs(id) < 100000000000000 then
  id = id .. ''
end
