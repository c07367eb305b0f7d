--- needs: ARGV.base
--- include call
--- include relay_grammar

-- specs/06-later-versions.md#sec-4-14: the members of the index of subscriptions begin with a letter and a bar.
local subscriptions, last_byte = ARGV.base .. ':subs', string.char(255)

-- further arguments: those of LIMIT, with the word
local function beginning_with(start, ...)
  return call('ZRANGEBYLEX', subscriptions, '[' .. start, '[' .. start .. last_byte, ...)
end

local function count_beginning_with(start)
  return call('ZLEXCOUNT', subscriptions, '[' .. start, '[' .. start .. last_byte)
end

-- segments: those of the pattern, which has wildcards
local function wild_member(segments, pattern)
  local first = segments[1]
  return 'w|' .. (first == '>' and '*' or first) .. '|' .. pattern
end

-- members: of subscriptions, as those of nodes name them
local function drop(members)
  for index = 1, #members do
    local node, endpoint, pattern = string.match(members[index], '^n|([^|]*)|([^|]*)|(.*)$')
    local tail = node .. '|' .. endpoint
    call('ZREM', subscriptions, 'n|' .. tail .. '|' .. pattern, 'p|' .. pattern .. '|' .. tail)
    if count_beginning_with('p|' .. pattern .. '|') == 0 then
      --@last-of-pattern
      call('ZREM', subscriptions, 't|' .. pattern)
      local segments, has_wildcard = segments_of(pattern, true)
      if segments and has_wildcard then
        --@wildcard
        call('ZREM', subscriptions, wild_member(segments, pattern))
      end
    else
      --@others-of-pattern
    end
  end
end
