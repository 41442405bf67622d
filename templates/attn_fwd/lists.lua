-- Operand lists of wgmma, whose accumulators have as many registers as a variant's shape wants.
local lists = {}

-- The pattern for each number from..to, its "@" the number: list("%@", 0, 2) is "%0, %1, %2".
function lists.list(pattern, from, to)
  local parts = {}
  for i = from, to do parts[#parts + 1] = (pattern:gsub("@", tostring(i))) end
  return table.concat(parts, ", ")
end

return lists
