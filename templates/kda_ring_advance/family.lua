-- The counters of kda_decode's rings: a thread a row, a microsecond whatever it does. Nothing is to be chosen but the block.
return family {
  name = "kda_ring_advance",
  required = { { name = "counters", values = { "int32", "accept" } } }, -- accept: of several tokens
  free = { { name = "warps", values = { 1, 8 }, tag = "w" } },
  legal = function(v, arch) return true end,
  facts = { "rows", "dependent" }, -- of a block; waits on the device for the kernel before it
  coords = { "batch" },
  plan = function(v, arch)
    local threads = 32 * v.warps
    local facts = { rows = threads, dependent = arch.cc >= 90 and 1 or 0 }
    return { threads = threads, shared = 0, cluster = 1, max_registers = 32, facts = facts }
  end,
  template = function(v) return v.counters == "accept" and "kda_ring_accept.cu.in" or "kda_ring_advance.cu.in" end,
  fallback = function(v) return v.warps == 1 end,
}
