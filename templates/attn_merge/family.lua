-- Merge of attention states by their log-sum-exps: what variants exist, and why not others.
--
-- Every byte is used once, so the time is that of the memory, or where rows are few a chain of latencies: the states'
-- log-sum-exps, which come with their values, one round of loads for each `flight` states of a thread.
--
--   flight  states whose loads a thread has under way
--   split   threads that share the states of 16 bytes of a row: few where rows are many, more where states are
return family {
  name = "attn_merge",
  required = {
    { name = "dtype", values = { "bf16", "fp16", "fp32" } },   -- of v
    { name = "o_dtype", values = { "bf16", "fp16", "fp32" } }, -- of o
  },
  free = {
    { name = "warps", values = { 4, 8 }, tag = "w" },
    { name = "flight", values = { 2, 8 }, tag = "f" },
    { name = "split", values = { 1, 4 }, tag = "s" },
  },
  legal = function(v, arch)
    if v.split == 4 and v.flight == 2 then return "two states are not worth an exchange" end
    if (v.split == 4) ~= (v.warps == 8) then return "four warps hold a row of 512 columns of fp32, and a split of rows half as long eight" end
    return true
  end,
  facts = { "split", "flight", "dependent" },
  coords = { "items", "states" },
  plan = function(v, arch)
    return {
      threads = 32 * v.warps,
      shared = 0,
      cluster = 1,
      max_registers = 128,
      facts = {
        split = v.split,
        flight = v.flight,
        dependent = arch.cc >= 90 and 1 or 0, -- the template waits there
      },
    }
  end,
  template = function(v) return "attn_merge.cu.in" end,
  fallback = function(v) return v.flight == 8 and v.split == 1 end,
}
