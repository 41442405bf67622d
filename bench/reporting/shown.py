"""What README.md shows of the results: twelve cases, one plot, and what peers are called. No number stands here."""

# (operator, problem, results, case, unit): the unit is what the operator is judged by. `tflops` and `gbps` are rates, `share` is
# the bandwidth as a share of the in-place copy's, `us` is a time.
ROWS = (
    ("attention, fp16", "4 x 32 heads of 128, 8,192 rows, full", "sm90_132sm/attn_fwd", "Z4-H32-D128-N8192-full-fp16", "tflops"),
    ("attention, fp16", "the same, causal", "sm90_132sm/attn_fwd", "Z4-H32-D128-N8192-causal-fp16", "tflops"),
    ("attention, e4m3", "the same, full", "sm90_132sm/attn_fwd", "Z4-H32-D128-N8192-full-e4m3", "tflops"),
    ("attention, bf16", "32 heads on 8, 8,192 rows, causal", "sm90_132sm/attn_fwd", "Z1-H32of8-D128-N8192-causal-bf16", "tflops"),
    ("attention over pages, bf16", "16 requests of 8,192 keys, 32 heads on 8, one token", "sm90_132sm/attn_paged", "D3", "gbps"),
    ("MLA decode, bf16", "128 requests of 4,096 rows, 16 heads", "sm90_132sm/mla_decode", "B128-N4096-H16-P64-T1-bf16", "gbps"),
    ("MLA decode, bf16", "the same, 128 heads", "sm90_132sm/mla_decode", "B128-N4096-H128-P64-T1-bf16", "tflops"),
    ("Lightning Attention, decode", "64 requests, 64 heads", "sm90_132sm/la_decode", "B64-H64-K128-V128-vk", "share"),
    ("KDA decode", "64 requests, 32 heads", "sm90_132sm/kda_decode", "N64-H32-HV32-vk", "share"),
    ("KDA prefill", "8,192 tokens, 64 heads", "sm90_132sm/kda_prefill", "B1-T8192-H64", "us"),
    ("KDA prefill", "32,768 tokens, 8 heads", "sm90_132sm/kda_prefill", "B1-T32768-H8", "us"),
    ("KDA training", "forward and backward, 8,192 tokens, 64 heads", "sm90_132sm/kda_train", "B1-T8192-H64", "us"),
)

PLOT = "attn_fwd_sm90_132sm.png"

# Names of peers; one that is not here is shown by its name in the results.
PEERS = {
    "cudnn": "cuDNN",
    "cudnn-live": "cuDNN",
    "fa2": "FlashAttention-2",
    "fa3-live": "FlashAttention-3",
    "fa3-recorded": "FlashAttention-3 (recorded)",
    "flashmla-recorded": "FlashMLA (recorded)",
    "fla-graph": "FLA",
    "fla-recorded": "FLA (recorded)",
    "flashkda-graph": "FlashKDA (recorded)",
    "cula": "cuLA (recorded)",
}

# FlashAttention-2 has no Hopper kernel; it stands in the report alone.
HIDDEN = ("fa2", "fa2-live")

# The peer whose speedup is the share of the in-place copy's bandwidth.
COPY = "inplace-copy"

# Operators that have a row of their own in README.md's support table; the others are stages and launches of these.
USERS = ("attn_fwd", "attn_paged", "gdn_decode", "gdn_prefill", "gdn_step", "kda_bwd", "kda_decode", "kda_prefill", "kda_step",
         "la_decode", "mla_decode", "mla_sparse")
