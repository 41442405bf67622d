# SPDX-License-Identifier: MIT
"""The families as functions over arrays.

All take, beside what stands in their docstrings: `library` (a Library, None for the default product), `flags`
(DETERMINISTIC, BATCH_INVARIANT, SERIAL_LAUNCH, joined by |) and `workspace` (a tensor of bytes on the device, at
least as large as select() says and 256-byte aligned; None: torch's allocator is asked). They raise ValueError for a
shape, dtype, device or value that is not allowed, TypeError for an argument of another kind and RuntimeError for what
the driver refuses. Where T names tokens, tensors are of [B, T, ...], or of [T, ...] for one sequence; with
cu_seqlens they are packed, and B is 1; cu_seqlens and the like are int32 or int64.
"""

from . import backward, stages
from ._arrays import kind_of
from ._options import BATCH_INVARIANT, DETERMINISTIC, SERIAL_LAUNCH  # noqa: F401
from ._options import beta_form as _beta_form
from ._options import bias as _bias
from ._options import gate_form as _gate_form
from ._options import handle as _handle
from ._options import longest as _longest
from .stages import kda_chunk_h, kda_chunk_intra, kda_chunk_o, kda_gate, kda_recompute_wu  # noqa: F401

_WRITE = {"last": 0, "each": 1, "none": 2, "records": 3}


def attn_fwd(q, k, v, *, causal=False, scale=None, window=(-1, -1), softcap=0.0, cu_seqlens_q=None, cu_seqlens_k=None,
             max_seqlen_q=None, max_seqlen_k=None, q_descale=None, k_descale=None, v_descale=None, return_lse=False,
             out=None, out_dtype="bfloat16", library=None, flags=0, workspace=None):
    """Dense attention, forward: softmax(scale q k' + mask) v.

    q: [B, Sq, H, D], k and v: [B, Sk, HK, D] with H a multiple of HK; bfloat16, float16, float8_e4m3fn or
    float8_e5m2, D of 64, 128 or 256. Packed, with cu_seqlens_q and cu_seqlens_k of [B + 1]: [rows, H, D];
    max_seqlen_q and max_seqlen_k are then the most rows of any sequence (None: all rows).
    window: keys before and behind a query that count, -1 for all; causal is aligned at the bottom right.
    q_descale, k_descale, v_descale: [B, HK] float32, of 8-bit types alone.
    Returns o, as q (of 8-bit types in out_dtype, "bfloat16" or "float16"), and with return_lse (o, lse), lse of
    [B, H, Sq] or packed [H, rows], float32.
    """
    xp = kind_of(q)
    packed = cu_seqlens_q is not None
    if packed:
        cu_seqlens_q, cu_seqlens_k = xp.index(cu_seqlens_q), xp.index(cu_seqlens_k)
        max_seqlen_q = q.shape[0] if max_seqlen_q is None else max_seqlen_q
        max_seqlen_k = k.shape[0] if max_seqlen_k is None else max_seqlen_k
    if out is None:
        out = xp.named(q, q.shape, out_dtype) if q.dtype.itemsize == 1 else xp.like(q)
    lse = None
    if return_lse:
        lse = xp.fp32(q, (q.shape[1], q.shape[0]) if packed else (q.shape[0], q.shape[2], q.shape[1]))
    answer = xp.call("attn_fwd", _handle(library), flags, workspace, q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k,
                   max_seqlen_q, max_seqlen_k, scale, causal, window[0], window[1], softcap, q_descale, k_descale,
                   v_descale)
    if answer is not None:
        return answer
    return (xp.give(out), xp.give(lse)) if return_lse else xp.give(out)


def attn_paged(q, k, v, kv_len=None, page_indices=None, *, page_indptr=None, last_page_len=None, q_indptr=None,
               q_len=None, max_kv_len=None, mean_kv_len=None, kv_layout="NHD", causal=True, window_left=-1, scale=None,
               softcap=0.0, sink=None, q_descale=None, k_descale=None, v_descale=None, return_lse=False,
               lse_base_2=False, lse_sink=False, out=None, library=None, flags=0, workspace=None):
    """Attention of new tokens over caches of keys and values, in pages or not; the tokens' own keys are in the cache.

    q: [tokens, H, D], bfloat16 or float16, D of 64, 128 or 256, or of 192 with v and o of 128; k, v: [pages, page_size,
    HK, D], with kv_layout "HND" [pages, HK, page_size, D], of the same dtype or float8_e4m3fn, of any strides. kv_len: [batch] int32, keys of each
    request; None with page_indptr and last_page_len of [batch]. page_indices: [batch, pages of a request] int32, or
    with page_indptr of [batch + 1] one list; None: not paged, page b is request b.
    q_indptr: [batch + 1] int32, where each request's tokens begin, q_len at most (None: all tokens); without it every
    request has tokens / batch. max_kv_len: the most keys of any request (None: what the pages have room for),
    mean_kv_len: their mean, which the choice goes by (None: max_kv_len). window_left: keys before a token's own that
    count, -1 for all. sink: [H] float32. q_descale, k_descale, v_descale: [batch, HK] or [1, 1] float32.
    Returns o: [tokens, H, D], and with return_lse (o, lse), lse of [tokens, H] float32, natural or with lse_base_2 to
    base 2, without the sink or with lse_sink with it.
    """
    xp = kind_of(q)
    if kv_layout not in ("NHD", "HND"):
        raise ValueError(f"kv_layout is {kv_layout!r}; allowed: 'NHD', 'HND'")
    if kv_layout == "HND":
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    kv_len, page_indices, page_indptr = xp.int32(kv_len), xp.int32(page_indices), xp.int32(page_indptr)
    last_page_len, q_indptr = xp.int32(last_page_len), xp.int32(q_indptr)
    lengths = last_page_len if kv_len is None else kv_len
    batch = 1 if lengths is None else lengths.shape[0]
    if q_len is None:
        q_len = max(1, q.shape[0] if q_indptr is not None else q.shape[0] // max(1, batch))
    if max_kv_len is None:
        pages = 1 if page_indices is None else page_indices.shape[-1]
        max_kv_len = max(1, min(pages * k.shape[1], 1 << 24))
    if mean_kv_len is None:
        mean_kv_len = max_kv_len
    if out is None:
        narrow = v is not None and q is not None and v.shape[-1] != q.shape[-1]
        out = xp.empty(q, (*q.shape[:2], v.shape[-1])) if narrow else xp.like(q)
    lse = xp.fp32(q, q.shape[:2]) if return_lse else None
    answer = xp.call("attn_paged", _handle(library), flags, workspace, q, k, v, out, lse, kv_len, page_indices,
                   page_indptr, last_page_len, q_indptr, q_len, mean_kv_len, max_kv_len, scale, causal, window_left,
                   softcap, sink, q_descale, k_descale, v_descale, lse_base_2, lse_sink)
    if answer is not None:
        return answer
    return (xp.give(out), xp.give(lse)) if return_lse else xp.give(out)


def attn_merge(v, lse, v_2=None, lse_2=None, *, return_lse=True, lse_base_2=False, out=None, out_lse=None,
               out_dtype=None, library=None, flags=0, workspace=None):
    """Merges what attention gave on disjoint sets of keys, by the log-sum-exps.

    v: [rows, states, H, D] and lse: [rows, states, H] float32; or two states, v and v_2 of [rows, H, D], lse and lse_2
    of [rows, H]. v: bfloat16, float16 or float32, D a multiple of 8 up to 512. A state whose lse is -inf or +inf is
    empty. out and out_lse may be v_2 and lse_2 (or v and lse of two states), whose place they take.
    Returns o: [rows, H, D] of v's dtype or out_dtype, and with return_lse (o, lse), lse of [rows, H].
    """
    xp = kind_of(v)
    shape = v.shape if v_2 is not None else (v.shape[0], *v.shape[2:])
    if out is None:
        out = xp.named(v, shape, out_dtype) if out_dtype is not None else xp.empty(v, shape)
    if out_lse is None and return_lse:
        out_lse = xp.fp32(v, shape[:2])
    answer = xp.call("attn_merge", _handle(library), flags, workspace, v, lse, v_2, lse_2, out, out_lse, lse_base_2)
    if answer is not None:
        return answer
    return (xp.give(out), xp.give(out_lse)) if return_lse else xp.give(out)


def mla_decode(q_nope, q_pe, ckv, kpe, kv_len, page_indices, *, page_indptr=None, q_indptr=None, q_len=None,
               max_kv_len=None, mean_kv_len=None, scale=None, causal=True, return_lse=False, lse_base_2=False,
               ckv_scale=1.0, kpe_scale=1.0, q_scale=1.0, out=None, out_dtype="bfloat16", library=None, flags=0,
               workspace=None):
    """MLA decode over a paged cache of latents, in the absorbed form.

    q_nope: [tokens, H, 512], q_pe: [tokens, H, 64] or None, bfloat16 or float16; ckv: [pages, page_size, 512], kpe:
    [pages, page_size, 64] or None, of the same dtype or float8_e4m3fn; with that queries may be float8_e4m3fn, too
    (sm_90), each times q_scale, and o is of out_dtype. kv_len: [batch] int32, rows of each request.
    page_indices: [batch, pages of a request] int32, or with page_indptr of [batch + 1] one list.
    q_indptr: [batch + 1], where each request's query tokens begin, q_len at most (None: 8); without it every
    request has tokens / batch. max_kv_len: the most rows of any request (None: what the page table has room for),
    mean_kv_len: their mean, which the choice goes by (None: max_kv_len). scale None: 1/sqrt(192), DeepSeek's.
    Returns o: [tokens, H, 512], and with return_lse (o, lse), lse of [tokens, H] float32.
    """
    xp = kind_of(q_nope)
    kv_len, page_indices = xp.int32(kv_len), xp.int32(page_indices)
    page_indptr, q_indptr = xp.index(page_indptr), xp.index(q_indptr)
    batch = kv_len.shape[0]
    if q_len is None:
        q_len = 8 if q_indptr is not None else max(1, q_nope.shape[0] // max(1, batch))
    if max_kv_len is None:
        max_kv_len = max(1, min(page_indices.shape[-1] * ckv.shape[1], 1 << 24))
    if mean_kv_len is None:
        mean_kv_len = max_kv_len
    if scale is None:
        scale = 192 ** -0.5
    if out is None:
        out = xp.named(q_nope, q_nope.shape, out_dtype) if q_nope.dtype.itemsize == 1 else xp.like(q_nope)
    lse = xp.fp32(q_nope, q_nope.shape[:2]) if return_lse else None
    answer = xp.call("mla_decode", _handle(library), flags, workspace, q_nope, q_pe, ckv, kpe, out, lse, kv_len,
                   page_indices, page_indptr, q_indptr, q_len, mean_kv_len, max_kv_len, scale, causal, lse_base_2,
                   ckv_scale, kpe_scale, q_scale)
    if answer is not None:
        return answer
    return (xp.give(out), xp.give(lse)) if return_lse else xp.give(out)


def mla_sparse(q_nope, q_pe, kv, indices, *, topk_length=None, sink=None, scale=None, return_lse=False,
               lse_base_2=False, out=None, library=None, flags=0, workspace=None):
    """Sparse MLA decode, in the absorbed form: each query token attends the cache rows that its own list names.

    q_nope: [tokens, H, 512], q_pe: [tokens, H, 64] or None, bfloat16 or float16; kv: [pages, page_size, 576] of the
    same dtype (512 columns without q_pe), or with bfloat16 queries [pages, page_size, 656] of uint8 or float8_e4m3fn:
    512 elements of float8_e4m3fn, four float32 scales, each of 128 of these, and 64 of bfloat16, the rotary key.
    indices: [batch, tokens / batch, topk] int32, entries page * page_size + row; -1 and what else is no row of kv does
    not count. topk_length: [batch] or [batch, tokens / batch] int32, entries that are looked at (None: all). sink: [H]
    float32, a score without a value. scale None: 1/sqrt(192), DeepSeek's.
    Returns o: [tokens, H, 512], zeros where nothing counts, and with return_lse (o, lse), lse of [tokens, H] float32,
    without the sink and -inf where nothing counts.
    """
    xp = kind_of(q_nope)
    if out is None:
        out = xp.like(q_nope)
    lse = xp.fp32(q_nope, q_nope.shape[:2]) if return_lse else None
    answer = xp.call("mla_sparse", _handle(library), flags, workspace, q_nope, q_pe, kv, out, lse, xp.int32(indices),
                   xp.int32(topk_length), sink, 192 ** -0.5 if scale is None else scale, lse_base_2)
    if answer is not None:
        return answer
    return (xp.give(out), xp.give(lse)) if return_lse else xp.give(out)


def la_decode(q, k, v, state, decay, *, slots=None, scale=None, state_v_first=False, zero_padding=False, slots_out=None,
              null_slot=None, out=None, library=None, flags=0, workspace=None):
    """Lightning Attention decode: one token a row; the states are updated in place.

    q, k: [B, H, D], v: [B, HV, D] (or [B, 1, ..., D]) bfloat16 or float16, D of 64, 128 or 256. state: [slots, HV, D,
    D] float32, bfloat16 or float16 (rounded once, where it is written), [K, V] or with state_v_first [V, K]; slots may be
    apart in memory. decay: [H] or [HV] float32, >= 0: a state is scaled by exp(-decay).
    slots: [B] int32, the state of each row; one outside of the pool, or null_slot, marks a padding row, whose output is
    left as it is, or with zero_padding zero. None: row b has state b. slots_out: [B] int32, where states go in place of
    that. scale None: 1/sqrt(D).
    Returns o, as v.
    """
    xp = kind_of(q)
    if out is None:
        out = xp.like(v)
    answer = xp.call("la_decode", _handle(library), flags, workspace, q, k, v, out, decay, state, xp.int32(slots), scale,
                   state_v_first, zero_padding, xp.int32(slots_out), null_slot)
    return xp.give(out) if answer is None else answer


def kda_decode(q, k, v, g, beta, state, *, A_log=None, dt_bias=None, slots=None, accepted=None, cu_seqlens=None,
               num_tokens=None, scale=None, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
               use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None, state_v_first=False,
               write="last", zero_padding=False, slots_out=None, null_slot=None, ring_k=None, ring_g=None, ring_u=None,
               ring_fill=None, ring_base=None, flush=None, ring_len=None, out=None, library=None, flags=0,
               workspace=None):
    """Kimi Delta Attention decode: 1 to 16 tokens a row; the states are updated in place.

    q, k: [B, T, H, K], v: [B, T, HV, V] bfloat16 or float16, K = V of 64 or 128; g: [B, T, HV, K] and beta: [B, T, HV]
    of that dtype or float32; [B, H, K] and so on for one token. With cu_seqlens of [B + 1]: [tokens, H, K], of
    rows of num_tokens at most (None: 16). state: [slots, HV, K, V] float32, bfloat16 or float16 (rounded once, where it
    is written), or with state_v_first [.., V, K]; slots may be apart in memory.
    slots: [B] or [B, columns] int32, accepted: [B] int32: row b begins with the state of slots[b, accepted[b] - 1];
    a slot outside of the pool, or null_slot, marks a padding row. write: "last" (the last state goes back where the
    first came from), "each" (the one behind token t goes to slots[b, t]) or "none". slots_out: [B] or [B, columns]
    int32, where states go in place of that.
    The gate: g as it is, with use_gate_in_kernel -exp(A_log) softplus(g + dt_bias), and with lower_bound
    lower_bound sigmoid(exp(A_log) (g + dt_bias)); A_log: [HV], dt_bias: [HV, K] float32. beta: as it is, or by
    sigmoid, twice that with allow_neg_eigval.
    With ring_len (2 to 32) states are written once in so many steps of one token, and a record of each token is in
    between: ring_k [slots, H, R, K] of q's dtype, ring_g [slots, HV, R, K] of g's, ring_u [slots, HV, R, V] float32 or
    float16, R >= ring_len - 1; ring_fill and ring_base: [slots] int32, which kda_ring_advance brings up to date behind
    a step's last layer. flush: [B] uint8, rows whose state is wanted behind this step. With T > 1 (R >= 2 T) and
    write="records" each token leaves its record, and kda_ring_accept says how many stay.
    Returns o, as v.
    """
    ring = (ring_k, ring_g, ring_u, ring_fill, ring_base, flush, ring_len)
    return _recurrent_decode("kda_decode", q, k, v, g, beta, state, A_log, _bias(dt_bias, g), slots, accepted,
                             cu_seqlens, num_tokens, scale, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                             use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound, state_v_first, write,
                             zero_padding, slots_out, null_slot, out, library, flags, workspace, ring)


def kda_ring_advance(ring_fill, ring_base, *, ring_len, ring_size=None, slots=None, flush=None, null_slot=None,
                     num_tokens=1, library=None, flags=0, workspace=None):
    """The counters of kda_decode's rings behind a step: one launch for all layers.

    ring_fill, ring_base: [slots] int32, ring_fill is updated in place; slots: [B] int32 and flush: [B] uint8 as
    kda_decode had them (no float anywhere). ring_size: records that a ring holds (None: ring_len). num_tokens=0: to 0,
    behind a fold alone or before a request begins.
    Returns ring_fill.
    """
    xp = kind_of(ring_fill)
    answer = xp.call("kda_ring_advance", _handle(library), flags, workspace, ring_fill, ring_base, xp.int32(slots),
                     flush, null_slot, num_tokens, ring_len, ring_size or 0)
    return xp.give(ring_fill) if answer is None else answer


def kda_ring_accept(ring_fill, ring_base, *, num_tokens, ring_size, accepted=None, slots=None, flush=None,
                    null_slot=None, library=None, flags=0, workspace=None):
    """The counters of kda_decode's rings behind a step of num_tokens tokens, of which accepted: [B] int32 stay.

    ring_fill, ring_base: [slots] int32, updated in place; slots and flush as kda_decode had them (no float anywhere).
    accepted None: all.
    Returns (ring_fill, ring_base).
    """
    xp = kind_of(ring_fill)
    answer = xp.call("kda_ring_accept", _handle(library), flags, workspace, ring_fill, ring_base, xp.int32(slots),
                     flush, null_slot, num_tokens, ring_size, xp.int32(accepted))
    return (xp.give(ring_fill), xp.give(ring_base)) if answer is None else answer


def _recurrent_decode(name, q, k, v, g, beta, state, A_log, dt_bias, slots, accepted, cu_seqlens, num_tokens, scale,
                      use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval,
                      lower_bound, state_v_first, write, zero_padding, slots_out, null_slot, out, library, flags,
                      workspace, ring=()):
    xp = kind_of(q)
    if out is None:
        out = xp.like(v)
    if not use_gate_in_kernel:
        A_log = dt_bias = None
    if write not in _WRITE:
        raise ValueError(f"write is {write!r}; allowed: 'last', 'each', 'none', 'records'")
    answer = xp.call(name, _handle(library), flags, workspace, q, k, v, g, beta, out, A_log, dt_bias, state,
                   xp.int32(slots), xp.int32(accepted), xp.index(cu_seqlens), num_tokens, scale,
                   lower_bound if use_gate_in_kernel else None, _gate_form(use_gate_in_kernel, lower_bound),
                   _beta_form(use_beta_sigmoid_in_kernel, allow_neg_eigval), use_qk_l2norm_in_kernel, state_v_first,
                   _WRITE[write], zero_padding, xp.int32(slots_out), null_slot, *ring)
    return xp.give(out) if answer is None else answer


def gdn_decode(q, k, v, g, beta, state, *, A_log=None, dt_bias=None, slots=None, accepted=None, cu_seqlens=None,
               num_tokens=None, scale=None, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
               use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, state_v_first=False, write="last",
               zero_padding=False, slots_out=None, null_slot=None, ring_k=None, ring_g=None, ring_u=None,
               ring_fill=None, ring_base=None, flush=None, ring_len=None, out=None, library=None, flags=0,
               workspace=None):
    """Gated DeltaNet decode: kda_decode with one gate a token and head, g: [B, T, HV].

    All else is as in kda_decode; with use_gate_in_kernel the gate is -exp(A_log) softplus(g + dt_bias), A_log and
    dt_bias: [HV] float32. With a ring, of steps of one token, ring_g: [slots, HV, R], in one piece.
    Returns o, as v.
    """
    return _recurrent_decode("gdn_decode", q, k, v, g, beta, state, A_log, dt_bias, slots, accepted, cu_seqlens,
                             num_tokens, scale, use_qk_l2norm_in_kernel, use_gate_in_kernel,
                             use_beta_sigmoid_in_kernel, allow_neg_eigval, None, state_v_first, write, zero_padding,
                             slots_out, null_slot, out, library, flags, workspace,
                             (ring_k, ring_g, ring_u, ring_fill, ring_base, flush, ring_len))


_Z = {"sigmoid": 0, "silu": 1}


def kda_step(x, conv_w, conv_state, gate, beta, state, *, conv_bias=None, A_log=None, dt_bias=None, z=None, norm_w=None,
             slots=None, scale=None, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=False,
             lower_bound=None, z_form="sigmoid", eps=1e-5, conv_state_update=True, null_slot=None, zero_padding=False,
             out=None, library=None, flags=0, workspace=None):
    """A decode step of a Kimi Delta Attention layer in one launch: convolution, SiLU, L2 norm, KDA, gated RMSNorm.

    x: [B, (2 H + HV) * 128], q, k and v of one token a row in front of the convolution, bfloat16 or float16. conv_w:
    [W, channels] float32, the oldest input's weights first, W of 2, 3 or 4, or [3, W, channels of a part]; conv_bias:
    [channels] float32. conv_state: [slots, W - 1, channels] or [slots, channels, W - 1], as x: the last inputs, which
    move on by one, but where conv_state_update is False. gate: [B, HV, 128], beta: [B, HV], as x or float32, A_log:
    [HV], dt_bias: [HV, 128] float32, activated as in kda_decode. state: [slots, HV, V, K] float32, bfloat16 or
    float16, updated in place.
    z: [B, HV, 128], norm_w: [128] float32: the output is divided by sqrt(mean of squares + eps) and multiplied by norm_w
    and the sigmoid of z, with z_form "silu" by z sigmoid(z); None both: it is left as it is.
    slots: [B] int32, the slot of each row in both pools; one outside of them, or null_slot, marks a padding row.
    None: row b has slot b. scale None: 128 ** -0.5.
    Returns out: [B, HV, 128].
    """
    return _step("kda_step", x, conv_w, conv_state, gate, beta, state, conv_bias, A_log, _bias(dt_bias, gate), z, norm_w,
                 slots, scale, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound, z_form, eps,
                 conv_state_update, null_slot, zero_padding, out, library, flags, workspace)


def gdn_step(x, conv_w, conv_state, gate, beta, state, *, conv_bias=None, A_log=None, dt_bias=None, z=None, norm_w=None,
             slots=None, scale=None, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, allow_neg_eigval=False,
             z_form="silu", eps=1e-6, conv_state_update=True, null_slot=None, zero_padding=False, out=None, library=None,
             flags=0, workspace=None):
    """A decode step of a Gated DeltaNet layer in one launch: kda_step with one gate a row and head.

    gate: [B, HV], A_log and dt_bias: [HV] float32; all else is as in kda_step.
    Returns out: [B, HV, 128].
    """
    return _step("gdn_step", x, conv_w, conv_state, gate, beta, state, conv_bias, A_log, dt_bias, z, norm_w, slots, scale,
                 use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, None, z_form, eps, conv_state_update,
                 null_slot, zero_padding, out, library, flags, workspace)


def _step(name, x, conv_w, conv_state, gate, beta, state, conv_bias, A_log, dt_bias, z, norm_w, slots, scale,
          use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound, z_form, eps, conv_state_update,
          null_slot, zero_padding, out, library, flags, workspace):
    xp = kind_of(x)
    if z_form not in _Z:
        raise ValueError(f"z_form is {z_form!r}; allowed: 'sigmoid', 'silu'")
    if out is None:
        out = xp.named(x, tuple(x.shape[:-1]) + (state.shape[1], 128), x.dtype.name)
    if not use_gate_in_kernel:
        A_log = dt_bias = None
    answer = xp.call(name, _handle(library), flags, workspace, x, conv_w, conv_bias, conv_state, gate, beta, A_log,
                     dt_bias, z, norm_w, state, xp.int32(slots), out, scale,
                     lower_bound if use_gate_in_kernel else None, eps, _gate_form(use_gate_in_kernel, lower_bound),
                     _beta_form(use_beta_sigmoid_in_kernel, allow_neg_eigval), _Z[z_form], conv_state_update, null_slot,
                     zero_padding)
    return xp.give(out) if answer is None else answer


def kda_prefill(q, k, v, g, beta, *, scale=None, initial_state=None, output_final_state=False,
                use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                allow_neg_eigval=False, safe_gate=False, lower_bound=None, state_v_first=False, cu_seqlens=None,
                max_seqlen=None, A_log=None, dt_bias=None, segment_chunks=0, out=None, final_state=None, states=None,
                slots_in=None, slots_out=None, has_initial=None, null_slot=None, ckpt_pool=None, ckpt_begin=None,
                ckpt_token=None, ckpt_slot=None, ckpt_every=0, library=None, flags=0, workspace=None):
    """Kimi Delta Attention prefill: the whole forward, of sequences of any length.

    q, k: [B, T, H, K], v: [B, T, HV, V] bfloat16 or float16, K = V of 64 or 128, HV a multiple of H; g: [B, T, HV, K]
    and beta: [B, T, HV] of that dtype or float32. Gate, beta and norm: as in kda_decode. safe_gate promises that no
    activated gate is below -5, which is faster; a gate with lower_bound keeps that by itself.
    cu_seqlens: [N + 1], with B = 1. max_seqlen: the most tokens of
    any sequence; a smaller one cuts sequences short. None: all tokens, where cu_seqlens is on a GPU; the choice is
    better where it is known.
    initial_state: [N, HV, K, V] float32, or with state_v_first [N, HV, V, K]; None: zeros. final_state: where to write
    it, which may be initial_state. segment_chunks: how long sequences are cut, 0: as estimated, -1: not at all.
    states: where to write the state in front of each chunk of 64 tokens, which kda_bwd takes: [chunks, HV, K, V] as q,
    the sequences' chunks one behind the other; B * ceil(T / 64) of them, with cu_seqlens T // 64 + N.
    States in pools: initial_state and final_state (None, where it is asked for: initial_state) are [slots, HV, K, V],
    float32, bfloat16 or float16, slots may be apart in memory. slots_in, slots_out: [N] int32; a slot outside of the
    pool, or null_slot, is not touched: its sequence begins at zeros, or its state goes nowhere. has_initial: [N] bool,
    False: zeros whatever the slot holds. Checkpoints: the state behind token ckpt_token[e], a multiple of 64, of
    sequence n goes to slot ckpt_slot[e] of ckpt_pool, e from ckpt_begin[n] to ckpt_begin[n + 1]; or, with ckpt_every
    chunks of 64 tokens in place of both lists, the one behind token 64 ckpt_every (j + 1) to ckpt_slot[n, j].
    Returns (o, final_state), o as v; final_state is None where it is neither given nor asked for.
    """
    return _recurrent_prefill("kda_prefill", q, k, v, g, beta, scale, initial_state, output_final_state,
                              use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval,
                              safe_gate, lower_bound, state_v_first, cu_seqlens, max_seqlen, A_log, _bias(dt_bias, g),
                              segment_chunks, out, final_state, states,
                              (slots_in, slots_out, has_initial, null_slot, ckpt_pool, ckpt_begin, ckpt_token,
                               ckpt_slot, ckpt_every), library, flags, workspace)


def _recurrent_prefill(name, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
                       use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, safe_gate, lower_bound,
                       state_v_first, cu_seqlens, max_seqlen, A_log, dt_bias, segment_chunks, out, final_state, states,
                       pools, library, flags, workspace):
    xp = kind_of(q)
    if out is None:
        out = xp.like(v)
    max_seqlen = _longest(xp, cu_seqlens, max_seqlen)
    slots_in, slots_out, has_initial, null_slot, ckpt_pool, ckpt_begin, ckpt_token, ckpt_slot, ckpt_every = pools
    if final_state is None and output_final_state and slots_out is not None:
        final_state = initial_state
    if final_state is None and output_final_state:
        sequences = (q.shape[0] if len(q.shape) == 4 else 1) if cu_seqlens is None else cu_seqlens.shape[0] - 1
        final_state = xp.fp32(q, (sequences, v.shape[-2], q.shape[-1], v.shape[-1]))
    gate = _gate_form(use_gate_in_kernel, lower_bound)
    if not use_gate_in_kernel:
        A_log = dt_bias = None
    answer = xp.call(name, _handle(library), flags, workspace, q, k, v, g, beta, out, A_log, dt_bias,
                   initial_state, final_state, states, xp.index(cu_seqlens), max_seqlen, scale,
                   lower_bound if gate == 2 else None, gate,
                   _beta_form(use_beta_sigmoid_in_kernel, allow_neg_eigval), use_qk_l2norm_in_kernel, state_v_first,
                   bool(safe_gate or gate == 2), segment_chunks, xp.int32(slots_in), xp.int32(slots_out), has_initial,
                   null_slot, ckpt_pool, xp.int32(ckpt_begin), xp.int32(ckpt_token), xp.int32(ckpt_slot), ckpt_every)
    return (xp.give(out), xp.give(final_state)) if answer is None else answer


def gdn_prefill(q, k, v, g, beta, *, scale=None, initial_state=None, output_final_state=False,
                use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                allow_neg_eigval=False, state_v_first=False, cu_seqlens=None, max_seqlen=None, A_log=None, dt_bias=None,
                segment_chunks=0, out=None, final_state=None, states=None, slots_in=None, slots_out=None,
                has_initial=None, null_slot=None, ckpt_pool=None, ckpt_begin=None, ckpt_token=None, ckpt_slot=None,
                ckpt_every=0, library=None, flags=0, workspace=None):
    """Gated DeltaNet prefill: kda_prefill with one gate a token and head, g: [B, T, HV], of any size.

    All else is as in kda_prefill; with use_gate_in_kernel the gate is -exp(A_log) softplus(g + dt_bias), A_log and
    dt_bias: [HV] float32.
    Returns (o, final_state), o as v; final_state is None where it is neither given nor asked for.
    """
    return _recurrent_prefill("gdn_prefill", q, k, v, g, beta, scale, initial_state, output_final_state,
                              use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval,
                              False, None, state_v_first, cu_seqlens, max_seqlen, A_log, dt_bias, segment_chunks, out,
                              final_state, states,
                              (slots_in, slots_out, has_initial, null_slot, ckpt_pool, ckpt_begin, ckpt_token,
                               ckpt_slot, ckpt_every), library, flags, workspace)


ALL = {f.__name__: f for f in (
    attn_fwd, attn_paged, attn_merge, mla_decode, mla_sparse, la_decode, kda_decode, kda_prefill, gdn_decode,
    gdn_prefill, kda_step, gdn_step, kda_ring_advance, kda_ring_accept, *stages.ALL, *backward.ALL)}
