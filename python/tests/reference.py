# SPDX-License-Identifier: MIT
"""The operators in NumPy and double precision, from their definitions: token by token, no chunks, no tricks."""

import numpy as np


def f64(x):
    return np.asarray(x, np.float64)


def relative(found, expected):
    """The error's norm over that of what is expected."""
    found, expected = f64(found), f64(expected)
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def attention(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0.0):
    """q: [B, Sq, H, D]; k, v: [B, Sk, HK, D]. Returns o and lse [B, H, Sq]."""
    q, k, v = f64(q), f64(k), f64(v)
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat(group, 2), v.repeat(group, 2)
    s = np.einsum("bihd,bjhd->bhij", q, k) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    i = np.arange(s.shape[2])[:, None] + s.shape[3] - s.shape[2]
    j = np.arange(s.shape[3])[None]
    seen = np.ones(s.shape[2:], bool)
    if causal:
        seen &= j <= i
    if window[0] >= 0:
        seen &= j >= i - window[0]
    if window[1] >= 0:
        seen &= j <= i + window[1]
    s = np.where(seen, s, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        m = s.max(-1, initial=-np.inf, keepdims=True)
        e = np.where(seen, np.exp(s - m), 0)
        d = e.sum(-1, keepdims=True)
        p = np.where(d > 0, e / d, 0)
        lse = np.where(d > 0, m + np.log(d), -np.inf)[..., 0]
    return np.einsum("bhij,bjhd->bihd", p, v), lse


def mla(q_nope, q_pe, ckv, kpe, lengths, tables, q_len, scale, causal=True):
    """q_nope: [tokens, H, 512]; tables: [B, pages]. Returns o and lse [tokens, H]."""
    o, lse = np.zeros(q_nope.shape), np.full(q_nope.shape[:2], -np.inf)
    for b, n in enumerate(lengths):
        rows = f64(ckv)[tables[b]].reshape(-1, 512)[:n]
        keys = np.concatenate([rows, f64(kpe)[tables[b]].reshape(-1, 64)[:n]], 1)
        for t in range(q_len):
            row = b * q_len + t
            seen = n - q_len + t + 1 if causal else n
            if seen <= 0:
                continue
            q = np.concatenate([f64(q_nope)[row], f64(q_pe)[row]], 1)
            s = scale * q @ keys[:seen].T
            m = s.max(1, keepdims=True)
            e = np.exp(s - m)
            o[row] = e / e.sum(1, keepdims=True) @ rows[:seen]
            lse[row] = m[:, 0] + np.log(e.sum(1))
    return o, lse


def mla_lists(q_nope, q_pe, rows, lists, scale, sink=None):
    """rows: [n, 576]; lists: of each token, the rows that count. Returns o and lse [tokens, H]."""
    o, lse = np.zeros(q_nope.shape), np.full(q_nope.shape[:2], -np.inf)
    for token, its in enumerate(lists):
        if not its:
            continue
        keys = f64(rows)[its]
        s = scale * np.concatenate([f64(q_nope)[token], f64(q_pe)[token]], 1) @ keys.T
        e = np.exp(s)
        d = e.sum(1, keepdims=True)
        o[token] = e / (d if sink is None else d + np.exp(f64(sink))[:, None]) @ keys[:, :512]
        lse[token] = np.log(d[:, 0])
    return o, lse


def lightning(q, k, v, state, decay, scale=None):
    """q, k: [B, H, D], v: [B, HV, D], state: [B, HV, K, V]. Returns o and the new state."""
    group = v.shape[1] // q.shape[1]
    q, k = f64(q).repeat(group, 1), f64(k).repeat(group, 1)
    decay = f64(decay)
    decay = decay.repeat(group) if len(decay) != v.shape[1] else decay
    state = np.exp(-decay)[None, :, None, None] * f64(state) + k[..., None] * f64(v)[:, :, None]
    return np.einsum("bhk,bhkv->bhv", q, state) * (q.shape[2] ** -0.5 if scale is None else scale), state


def gate(g, A_log=None, dt_bias=None, lower_bound=None):
    """Activated gates of raw ones: [..., HV, K]."""
    x = f64(g) + (0 if dt_bias is None else f64(dt_bias).reshape(g.shape[-2:]))
    a = 1.0 if A_log is None else np.exp(f64(A_log))[:, None]
    return -a * np.logaddexp(0, x) if lower_bound is None else lower_bound * sigmoid(a * x)


def l2(x):
    x = f64(x)
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def kda(q, k, v, g, beta, state=None, scale=None):
    """q, k: [B, T, H, K], v: [B, T, HV, V], g (activated): [B, T, HV, K]. Returns o and the last state."""
    group = v.shape[2] // q.shape[2]
    q, k, v, g, beta = f64(q).repeat(group, 2), f64(k).repeat(group, 2), f64(v), f64(g), f64(beta)
    S = np.zeros((q.shape[0], v.shape[2], q.shape[3], v.shape[3])) if state is None else f64(state).copy()
    o = np.zeros(v.shape)
    for t in range(q.shape[1]):
        S = np.exp(g[:, t])[..., None] * S
        error = v[:, t] - np.einsum("bhk,bhkv->bhv", k[:, t], S)
        S = S + beta[:, t][..., None, None] * k[:, t][..., None] * error[:, :, None]
        o[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t], S)
    return o * (q.shape[3] ** -0.5 if scale is None else scale), S


def kda_packed(q, k, v, g, beta, cu_seqlens, state=None, scale=None):
    """The same of packed sequences, [1, T, ...]."""
    o, last = np.zeros(v.shape), []
    for n, (a, b) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:])):
        part, S = kda(q[:, a:b], k[:, a:b], v[:, a:b], g[:, a:b], beta[:, a:b],
                      None if state is None else state[n:n + 1], scale)
        o[:, a:b] = part
        last.append(S[0])
    return o, np.stack(last)


def chunk_sums(g, cu_seqlens=None):
    """log2(e) times the sums of gates [B, T, HV, K] within chunks of 64 tokens of each sequence."""
    out = f64(g).copy()
    bounds = [0, g.shape[1]] if cu_seqlens is None else cu_seqlens
    for a, b in zip(bounds[:-1], bounds[1:]):
        for c in range(a, b, 64):
            out[:, c:min(c + 64, b)] = np.cumsum(f64(g)[:, c:min(c + 64, b)], 1)
    return out * np.log2(np.e)
