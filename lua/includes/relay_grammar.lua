-- specs/06-later-versions.md#sec-4-14: ids, topics and patterns.
local function is_id(text)
  return #text <= 64 and string.find(text, '^[A-Za-z0-9_%-]+$') ~= nil
end

-- Gives the segments of a topic or of a pattern, nil if it is none; then whether it has wildcards.
local function segments_of(text, is_pattern)
  local segments, has_wildcard, is_closed = {}, false, false
  if #text == 0 or #text > 512 then
    --@length
    return nil
  end
  for segment in string.gmatch(text .. '.', '([^.]*)%.') do
    local is_wildcard = segment == '*' or segment == '>'
    if is_closed or (is_wildcard and not is_pattern) then
      --@no-wildcard-here
      return nil
    end
    if not is_wildcard and not string.find(segment, '^[A-Za-z0-9_:%%%-]+$') then
      --@characters
      return nil
    end
    is_closed = segment == '>'
    has_wildcard = has_wildcard or is_wildcard
    segments[#segments + 1] = segment
  end
  if #segments > 16 then
    --@too-many
    return nil
  end
  return segments, has_wildcard
end
