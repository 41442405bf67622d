-- Kimi Delta Attention inside a chunk: what variants exist, and why not others.
--
-- A block of 8 warps works out one chunk of one value head. What blocks of an SM do at a time is for them to differ in:
-- one loads while another multiplies.
--
--   blocks  of an SM that registers are counted out for
local ROWS = 64

-- Unbounded gates: also q and k as they came, sums of gates and norms.
local function unbounded(v, bytes)
  return (bytes + 2 * ROWS * 4 + ROWS * v.head_dim * 4 + 1023) // 1024 * 1024 + 2 * ROWS * v.head_dim * 2
end

local function shared(v)
  local tile = ROWS * v.head_dim * 2
  -- Rows of q and k, columns of k, values; A_qk, A_kk, X; sums of gates or diagonal blocks; factors; beta
  local bytes = 4 * tile + 3 * ROWS * ROWS * 2 + 4096 + 7 * v.head_dim * 4 + ROWS * 4
  return v.safe_gate == "safe" and bytes or unbounded(v, bytes)
end

return family {
  name = "kda_intra",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
    { name = "safe_gate", values = { "safe", "any" } },
  },
  free = {
    { name = "blocks", values = { 1, 2 }, tag = "b" },
  },
  -- Where shared memory is 99 KiB a block, unbounded gates have variants of 64 channels.
  serves = function(v, arch)
    if shared(v) > arch.shared_per_block then
      return string.format("unbounded gates need %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
    end
    return true
  end,
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
      max_registers = 65536 // 256 // v.blocks > 255 and 255 or 65536 // 256 // v.blocks,
      facts = { dependent = arch.cc >= 90 and 1 or 0 }, -- the template waits there
    }
  end,
  template = function(v) return "kda_intra.cu.in" end,
  fallback = function(v, arch) return true end,
}
