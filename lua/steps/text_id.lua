--- step: id

--- when text_ids
-- specs/06-later-versions.md#sec-11-2, step 3
id = id .. ''
--- else
-- Both text forms are the same here (specs/01-data-model-and-adding.md#sec-2-6), and text is cheaper to pass on.
if math.abs(id) < 100000000000000 then
  id = id .. ''
end
--- end
