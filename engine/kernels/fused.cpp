// Fused CPU kernels of the decoder layer: RMSNorm, rotary embedding with the KV-cache write, and
// paged attention. Plain C entry points on raw pointers; threads come from torch's own OpenMP.
//
// KV cache of one layer: [num_blocks][2][kv_heads][...], 2 = K, V. A K block is stored transposed,
// [head_dim][block_size], so that 16 tokens of one dimension are one vector; a V block is
// [block_size][head_dim]. block_size and head_dim are multiples of 16. All arithmetic is float32.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int LANES = 16;
using f32v = float __attribute__((vector_size(4 * LANES)));
using i32v = int32_t __attribute__((vector_size(4 * LANES)));
using u16v = uint16_t __attribute__((vector_size(2 * LANES)));

struct bf16 { uint16_t bits; };

inline f32v load(const float* p) { f32v v; std::memcpy(&v, p, sizeof v); return v; }
inline f32v load(const bf16* p) {
    u16v half;
    std::memcpy(&half, p, sizeof half);
    return (f32v)(__builtin_convertvector(half, i32v) << 16);
}
inline void store(float* p, f32v v) { std::memcpy(p, &v, sizeof v); }
inline void store(bf16* p, f32v v) {  // round to nearest even
    i32v u = (i32v)v;
    u += 0x7fff + ((u >> 16) & 1);
    u16v half = __builtin_convertvector(u >> 16, u16v);
    std::memcpy(p, &half, sizeof half);
}
inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
    uint32_t u = uint32_t(x.bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}
inline void put(float* p, float x) { *p = x; }
inline void put(bf16* p, float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    p->bits = uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
inline f32v splat(float x) { return f32v{} + x; }
inline float sum(f32v v) {
    float s = 0;
    for (int i = 0; i < LANES; ++i) s += v[i];
    return s;
}
inline float largest(f32v v) {
    float m = v[0];
    for (int i = 1; i < LANES; ++i) m = std::max(m, v[i]);
    return m;
}

// e^x for x ≤ 0, relative error about 2e-7: 2^n times a polynomial on |r| ≤ ln2/2.
inline f32v exp_nonpositive(f32v x) {
    x = x < -87.0f ? splat(-87.0f) : x;
    i32v n = __builtin_convertvector(x * 1.44269504f - 0.5f, i32v);
    f32v nf = __builtin_convertvector(n, f32v);
    f32v r = x - nf * 0.693359375f + nf * 2.12194440e-4f;
    f32v p = splat(1.3888889e-3f);
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (f32v)((n + 127) << 23);
}

template <class T>
void rms_norm_rows(const T* x, const float* weight, T* out, int rows, int dim, float eps) {
#pragma omp parallel for schedule(static) if (rows * dim > 32768)
    for (int r = 0; r < rows; ++r) {
        const T* in = x + int64_t(r) * dim;
        T* to = out + int64_t(r) * dim;
        f32v squares = splat(0);
        for (int i = 0; i < dim; i += LANES) { f32v v = load(in + i); squares += v * v; }
        float scale = 1.0f / std::sqrt(sum(squares) / dim + eps);
        for (int i = 0; i < dim; i += LANES) store(to + i, load(in + i) * scale * load(weight + i));
    }
}

template <class T>
void normed(T* head, const float* weight, int head_dim, float eps) {
    if (weight == nullptr) return;
    float squares = 0;
    for (int i = 0; i < head_dim; ++i) squares += to_float(head[i]) * to_float(head[i]);
    float scale = 1.0f / std::sqrt(squares / head_dim + eps);
    for (int i = 0; i < head_dim; ++i) put(head + i, to_float(head[i]) * scale * weight[i]);
}

template <class T>
void rotate(T* head, const float* cos, const float* sin, int head_dim) {
    int half = head_dim / 2;
    for (int i = 0; i < half; ++i) {
        float a = to_float(head[i]), b = to_float(head[i + half]);
        put(head + i, a * cos[i] - b * sin[i]);
        put(head + i + half, b * cos[i] + a * sin[i]);
    }
}

template <class T>
void rope_and_store_rows(T* qkv, const int64_t* positions, const int64_t* slots, const float* cos,
                         const float* sin, const float* q_norm, const float* k_norm, float eps,
                         T* cache, int tokens, int heads, int kv_heads, int head_dim,
                         int block_size) {
    int64_t head_block = int64_t(block_size) * head_dim;
#pragma omp parallel for schedule(static) if (tokens > 8)
    for (int t = 0; t < tokens; ++t) {
        T* row = qkv + int64_t(t) * (heads + 2 * kv_heads) * head_dim;
        const float* c = cos + positions[t] * (head_dim / 2);
        const float* s = sin + positions[t] * (head_dim / 2);
        for (int h = 0; h < heads + kv_heads; ++h) {
            normed(row + h * head_dim, h < heads ? q_norm : k_norm, head_dim, eps);
            rotate(row + h * head_dim, c, s, head_dim);
        }
        int64_t block = slots[t] / block_size, offset = slots[t] % block_size;
        for (int h = 0; h < kv_heads; ++h) {
            const T* k = row + (heads + h) * head_dim;
            const T* v = k + kv_heads * head_dim;
            T* k_to = cache + (block * 2 * kv_heads + h) * head_block + offset;
            T* v_to = cache + ((block * 2 + 1) * kv_heads + h) * head_block + offset * head_dim;
            for (int i = 0; i < head_dim; ++i) k_to[i * block_size] = k[i];
            std::memcpy(v_to, v, sizeof(T) * head_dim);
        }
    }
}

struct Tile { int seq, kv_head, first_row, num_positions; };

constexpr int TILE_ROWS = 32;

// Running softmax of one row over the blocks seen so far (Milakov & Gimelshein 2018).
template <int VECTORS>
struct Row {
    float most;
    f32v total;
    f32v mixed[VECTORS];
};

const i32v LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// R rows against one block of 16 tokens: each K and V vector is loaded once for all of them.
// k(i) is dimension i of the block's keys, v(t, j) vector j of token t. `present` of the tokens
// exist, what lies behind them is not initialised; visible[r] of them may be seen by row r.
template <int R, int HD, class Keys, class Values>
inline void absorb(const float (*queries)[HD], Keys k, Values v, int present, const int* visible,
                   Row<HD / LANES>* rows) {
    constexpr int VECTORS = HD / LANES;
    constexpr int CHAINS = R < 5 ? 2 : 1;  // sums in flight, to hide the latency of an addition
    f32v partial[CHAINS][R];
    for (int c = 0; c < CHAINS; ++c)
        for (int r = 0; r < R; ++r) partial[c][r] = splat(0);
    for (int i = 0; i < HD; i += CHAINS)
        for (int c = 0; c < CHAINS; ++c)
            for (int r = 0; r < R; ++r) partial[c][r] += k(i + c) * queries[r][i + c];
    f32v scores[R];
    for (int r = 0; r < R; ++r) {
        scores[r] = partial[0][r];
        if (CHAINS == 2) scores[r] += partial[CHAINS - 1][r];
    }
    float weights[R][LANES];
    for (int r = 0; r < R; ++r) {
        if (visible[r] < LANES) scores[r] = LANE < visible[r] ? scores[r] : splat(-1e30f);
        float top = largest(scores[r]);
        if (top > rows[r].most) {
            float shrink = std::exp(rows[r].most - top);
            rows[r].most = top;
            rows[r].total *= shrink;
            for (int j = 0; j < VECTORS; ++j) rows[r].mixed[j] *= shrink;
        }
        f32v weight = exp_nonpositive(scores[r] - rows[r].most);
        if (visible[r] < LANES) weight = LANE < visible[r] ? weight : splat(0);
        rows[r].total += weight;
        store(weights[r], weight);
    }
    constexpr int WIDTH = R < 5 && VECTORS % 2 == 0 ? 2 : 1;
    for (int j = 0; j < VECTORS; j += WIDTH) {
        f32v mixed[WIDTH][R];
        for (int w = 0; w < WIDTH; ++w)
            for (int r = 0; r < R; ++r) mixed[w][r] = rows[r].mixed[j + w];
        for (int t = 0; t < present; ++t)
            for (int w = 0; w < WIDTH; ++w)
                for (int r = 0; r < R; ++r) mixed[w][r] += v(t, j + w) * weights[r][t];
        for (int w = 0; w < WIDTH; ++w)
            for (int r = 0; r < R; ++r) rows[r].mixed[j + w] = mixed[w][r];
    }
}

// Up to 7 rows.
template <int HD, class Keys, class Values>
inline void absorb_some(int count, const float (*queries)[HD], Keys k, Values v, int present,
                        const int* visible, Row<HD / LANES>* rows) {
    int r = 0;
    if (count >= 4) {
        absorb<4, HD>(queries, k, v, present, visible, rows);
        r = 4;
    }
    switch (count - r) {
        case 3: return absorb<3, HD>(queries + r, k, v, present, visible + r, rows + r);
        case 2: return absorb<2, HD>(queries + r, k, v, present, visible + r, rows + r);
        case 1: return absorb<1, HD>(queries + r, k, v, present, visible + r, rows + r);
    }
}

// Rows of one tile: `num_positions` neighbouring query positions × the heads that share a KV head.
template <class T, int HD>
void attend_tile(const T* qkv, const T* cache, const int32_t* block_table, int first_position,
                 const Tile& tile, T* out, int heads, int kv_heads, int block_size, float scale) {
    constexpr int VECTORS = HD / LANES;
    const int group = heads / kv_heads;
    const int count = tile.num_positions * group;
    const int64_t head_block = int64_t(block_size) * HD;
    float queries[TILE_ROWS][HD];
    Row<VECTORS> rows[TILE_ROWS];
    int visible[TILE_ROWS];
    for (int r = 0; r < count; ++r) {
        int64_t token = tile.first_row + r / group;
        const T* q = qkv + (token * (heads + 2 * kv_heads) + tile.kv_head * group + r % group) * HD;
        for (int i = 0; i < HD; i += LANES) store(queries[r] + i, load(q + i) * scale);
        rows[r].most = -1e30f;
        rows[r].total = splat(0);
        for (int j = 0; j < VECTORS; ++j) rows[r].mixed[j] = splat(0);
    }
    const int end = first_position + tile.num_positions;
    for (int start = 0; start < end; start += LANES) {
        int64_t block = block_table[start / block_size];
        int offset = start % block_size;
        const T* keys = cache + (block * 2 * kv_heads + tile.kv_head) * head_block + offset;
        const T* values =
            cache + ((block * 2 + 1) * kv_heads + tile.kv_head) * head_block + offset * HD;
        const int present = std::min(LANES, end - start);
        for (int r = 0; r < count; ++r) visible[r] = first_position + r / group + 1 - start;
        auto k_in_place = [=](int i) { return load(keys + int64_t(i) * block_size); };
        auto v_in_place = [=](int t, int j) { return load(values + t * HD + j * LANES); };
        if (count <= 4) {  // a decode: nothing is read twice
            absorb_some<HD>(count, queries, k_in_place, v_in_place, present, visible, rows);
            continue;
        }
        f32v k[HD], v[LANES][VECTORS];
        for (int i = 0; i < HD; ++i) k[i] = k_in_place(i);
        for (int t = 0; t < present; ++t)
            for (int j = 0; j < VECTORS; ++j) v[t][j] = v_in_place(t, j);
        auto k_held = [&](int i) { return k[i]; };
        auto v_held = [&](int t, int j) { return v[t][j]; };
        int r = std::max(0, start - first_position) * group;  // earlier rows see none of this block
        for (; r + 8 <= count; r += 8)
            absorb<8, HD>(queries + r, k_held, v_held, present, visible + r, rows + r);
        absorb_some<HD>(count - r, queries + r, k_held, v_held, present, visible + r, rows + r);
    }
    for (int r = 0; r < count; ++r) {
        int64_t token = tile.first_row + r / group;
        T* to = out + (token * heads + tile.kv_head * group + r % group) * HD;
        float inverse = 1.0f / sum(rows[r].total);
        for (int j = 0; j < VECTORS; ++j) store(to + j * LANES, rows[r].mixed[j] * inverse);
    }
}

template <class T, int HD>
void attend(const T* qkv, const T* cache, const int32_t* block_tables, int table_stride,
            const int32_t* cu_seqlens_q, const int32_t* seq_lens, int seqs, T* out, int heads,
            int kv_heads, int block_size, float scale) {
    const int positions = std::max(1, TILE_ROWS / (heads / kv_heads));
    std::vector<Tile> tiles;
    for (int s = 0; s < seqs; ++s)
        for (int row = cu_seqlens_q[s]; row < cu_seqlens_q[s + 1]; row += positions)
            for (int h = 0; h < kv_heads; ++h)
                tiles.push_back({s, h, row, std::min(positions, cu_seqlens_q[s + 1] - row)});
    const int count = int(tiles.size());
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = count - 1; i >= 0; --i) {  // a sequence's longest context first
        const Tile& tile = tiles[i];
        int queries = cu_seqlens_q[tile.seq + 1] - cu_seqlens_q[tile.seq];
        int first_position =
            seq_lens[tile.seq] - queries + (tile.first_row - cu_seqlens_q[tile.seq]);
        attend_tile<T, HD>(qkv, cache, block_tables + int64_t(tile.seq) * table_stride,
                           first_position, tile, out, heads, kv_heads, block_size, scale);
    }
}

template <class T>
int attend_any(int head_dim, const T* qkv, const T* cache, const int32_t* block_tables,
               int table_stride, const int32_t* cu_seqlens_q, const int32_t* seq_lens, int seqs,
               T* out, int heads, int kv_heads, int block_size, float scale) {
    if (heads / kv_heads > TILE_ROWS) return 1;
#define CASE(HD)                                                                              \
    case HD:                                                                                  \
        attend<T, HD>(qkv, cache, block_tables, table_stride, cu_seqlens_q, seq_lens, seqs,   \
                      out, heads, kv_heads, block_size, scale);                               \
        return 0;
    switch (head_dim) {
        CASE(16) CASE(32) CASE(64) CASE(80) CASE(96) CASE(128) CASE(256)
    }
#undef CASE
    return 1;
}

}  // namespace

extern "C" {

void slotune_rms_norm(int is_bf16, const void* x, const float* weight, void* out, int rows, int dim,
                      float eps) {
    if (is_bf16)
        rms_norm_rows((const bf16*)x, weight, (bf16*)out, rows, dim, eps);
    else
        rms_norm_rows((const float*)x, weight, (float*)out, rows, dim, eps);
}

void slotune_rope_and_store(int is_bf16, void* qkv, const int64_t* positions, const int64_t* slots,
                            const float* cos, const float* sin, const float* q_norm,
                            const float* k_norm, float eps, void* cache, int tokens, int heads,
                            int kv_heads, int head_dim, int block_size) {
    if (is_bf16)
        rope_and_store_rows((bf16*)qkv, positions, slots, cos, sin, q_norm, k_norm, eps,
                            (bf16*)cache, tokens, heads, kv_heads, head_dim, block_size);
    else
        rope_and_store_rows((float*)qkv, positions, slots, cos, sin, q_norm, k_norm, eps,
                            (float*)cache, tokens, heads, kv_heads, head_dim, block_size);
}

// 0 when done, 1 when there is no instance for these shapes.
int slotune_paged_attention(int is_bf16, const void* qkv, const void* cache,
                            const int32_t* block_tables, int table_stride,
                            const int32_t* cu_seqlens_q, const int32_t* seq_lens, int seqs,
                            void* out, int heads, int kv_heads, int head_dim, int block_size,
                            float scale) {
    if (is_bf16)
        return attend_any<bf16>(head_dim, (const bf16*)qkv, (const bf16*)cache, block_tables,
                                table_stride, cu_seqlens_q, seq_lens, seqs, (bf16*)out, heads,
                                kv_heads, block_size, scale);
    return attend_any<float>(head_dim, (const float*)qkv, (const float*)cache, block_tables,
                             table_stride, cu_seqlens_q, seq_lens, seqs, (float*)out, heads,
                             kv_heads, block_size, scale);
}
}
