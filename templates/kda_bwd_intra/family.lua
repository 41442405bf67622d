-- What the scores' gradients make of a chunk's inputs: what variants exist, and why not others.
--
-- A block of 8 warps has one chunk of one value head.
--
--   blocks  of an SM that registers are counted out for
local function shared(v)
  local tile, groups = 64 * v.head_dim * 2, v.head_dim // 16
  local diagonals = v.safe_gate == "safe" and 64 * 4 or 2 * 64 * 17 * 4
  -- q, beta k and k, scaled; both gradients of scores, and their diagonals; anchors; betas; sums of beta's gradient
  return 3 * tile + 2 * 64 * 64 * 2 + diagonals + 5 * v.head_dim * 4 + 256 + groups * 256
end

return family {
  name = "kda_bwd_intra",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
    { name = "safe_gate", values = { "safe", "any" } },
  },
  free = {
    { name = "blocks", values = { 1, 2 }, tag = "b" },
  },
  legal = function(v, arch)
    local fit = arch.shared_per_sm // (shared(v) + 1024)
    if shared(v) > arch.shared_per_block then
      return string.format("needs %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    if v.blocks > fit then return "shared memory holds fewer blocks" end
    if v.blocks < math.min(fit, 2) then return "one block an SM waits for its own loads" end
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
  template = function(v) return "kda_bwd_intra.cu.in" end,
  fallback = function(v) return true end,
}
