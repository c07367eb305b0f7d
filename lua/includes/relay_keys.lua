--- needs: ARGV.base

-- specs/06-later-versions.md#sec-4-14: the keys of a namespace.
local function record_of(node)
  return ARGV.base .. ':' .. node .. ':node'
end

local function inbox_of(node)
  return ARGV.base .. ':' .. node .. ':inbox'
end

local function retained_of(topic)
  return ARGV.base .. ':' .. topic .. ':ret'
end
