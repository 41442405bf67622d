-- A stage of Kimi Delta Attention prefill, inside a chunk: what variants exist, and why not others.
--
-- A block of 8 warps works out one chunk of one value head. What blocks of an SM do at a time is for them to differ in:
-- one loads while another multiplies.
--
--   blocks  of an SM that registers are counted out for
local ROWS = 64

local function shared(v)
  local tile = ROWS * v.head_dim * 2
  -- Rows of q and k, columns of k, values; A_qk, A, its inverse; diagonal blocks; middle factors; beta
  return 4 * tile + 3 * ROWS * ROWS * 2 + 4096 + 7 * v.head_dim * 4 + ROWS * 4
end

return family {
  name = "kda_chunk_intra",
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
      max_registers = v.blocks == 2 and 128 or 255,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_chunk_intra.cu.in" end,
  fallback = function(v, arch) return true end,
}
