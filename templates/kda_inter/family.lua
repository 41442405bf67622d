-- Kimi Delta Attention between chunks.
local space = include("kda/space.lua")
local own = space.family("kda_inter", true)

own.legal = function(v, arch)
  local why = space.legal(v, arch)
  if why == true and v.state_pool == "pool" and v.groups > 1 then return "two groups have no registers for pools" end
  return why
end

return family(own)
