-- Kimi Delta Attention backward: the launches that are not a stage's. What variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
--
--   blocks  of an SM that registers are counted out for
local function shared(v)
  local tile = 64 * v.head_dim * 2
  return 2 * tile + v.head_dim // 64 * tile -- w, u, state
end

return family {
  name = "kda_bwd",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "blocks", values = { 1, 2, 3 }, tag = "b" },
  },
  legal = function(v, arch)
    local fit = arch.shared_per_sm // (shared(v) + 1024)
    if v.blocks > fit then return "shared memory holds fewer blocks" end
    if v.blocks < math.min(fit, 3) then return "fewer blocks an SM wait for their own loads" end
    return true
  end,
  facts = { "dependent" },
  coords = { "tiles" },
  plan = function(v, arch)
    return {
      threads = 256,
      shared = shared(v),
      cluster = 1,
      max_registers = math.min(255, 65536 // 256 // v.blocks // 8 * 8),
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_bwd.cu.in" end,
  fallback = function(v, arch) return true end,
}
