-- All gradients of a chunk's inputs in one launch: what variants exist, and why not others.
--
-- A block has an SM to itself and takes chunks of value heads in turn; a warp has 16 rows and 32 columns of products.
local function shared(v)
  local tile, state = 64 * v.head_dim * 2, 2 * v.head_dim * v.head_dim
  -- d_v_new, v_new, d_o, both states, A_kk; scores; operands; gates; vectors, of rows and of columns
  return 3 * tile + 2 * state + 8192 + 2 * 8192 + 3 * tile + 2 * tile + 18 * v.head_dim * 4 + (v.head_dim // 32 + 3) * 256 + 64
end

return family {
  name = "kda_bwd_grad",
  required = {
    { name = "dtype", values = { "bf16", "fp16" } },
    { name = "head_dim", values = { 64, 128 }, tag = "d" },
  },
  free = {
    { name = "blocks", values = { 1, 2 }, tag = "b" },
    -- of q and k, normalized: each head by itself, or kept in registers for all heads of a group
    { name = "rows", values = { "each", "kept" }, unspelled = "each" },
  },
  serves = function(v, arch)
    if not arch.wgmma then return "the stages one by one are for it" end
    return true
  end,
  legal = function(v, arch)
    local fit = arch.shared_per_sm // (shared(v) + 1024)
    if v.blocks > fit then return "shared memory holds fewer blocks" end
    if v.blocks < math.min(fit, 2) then return "one block an SM waits for its own loads" end
    return true
  end,
  facts = { "dependent" },
  coords = { "tiles", "group" },
  plan = function(v, arch)
    return {
      threads = 4 * v.head_dim,
      shared = shared(v),
      cluster = 1,
      max_registers = 128,
      facts = { dependent = 1 },
    }
  end,
  template = function(v) return "kda_bwd_grad.cu.in" end,
  fallback = function(v) return v.rows == "each" end,
}
