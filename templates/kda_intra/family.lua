-- Kimi Delta Attention inside a chunk: what variants exist, and why not others.
--
-- A block of 8 warps computes one chunk of one value head. What blocks of an SM do at a time is for them to differ in:
-- one loads while another multiplies.
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

local own = include("kda/stage.lua").family {
  name = "kda_intra",
  required = { name = "safe_gate", values = { "safe", "any" } },
  blocks = { 1, 2 },
  shared = shared,
  legal = function(v, arch, fit)
    if v.blocks < math.min(fit, 2) then return "one block an SM waits for its own loads" end
  end,
}

-- Where shared memory is 99 KiB a block, unbounded gates have variants of 64 channels.
own.serves = function(v, arch)
  if shared(v) > arch.shared_per_block then
    return string.format("unbounded gates need %d bytes of shared memory, %s allows %d", shared(v), arch.name, arch.shared_per_block)
  end
  return true
end

return family(own)
