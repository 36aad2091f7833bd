/* Dense networks: forward passes, and backward passes that move the weights.
 *
 * The same mathematics as ebbflow/core/dense.py. What is gained over a library's products: a
 * mini-batch is laid out once for all lanes and for both products, biases and activations are
 * applied while a sum is still in registers, and so are momentum and the step itself. Every sum has
 * a fixed order, which depends on the shapes of this device and lane alone, and not on the width of
 * vectors. hatch_build.py compiles this file for 256 and for 512 bits.
 *
 * Values are kept in panels of 16 samples, [panel][unit][sample], filled up with zeros.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define EXPORTED(name) name##_avx512
#define WIDE 16 /* numbers in a vector */
#define ROWS 12 /* of a tile: as many as there are registers for, with what is multiplied */
#define FOR_ROWS(count, call)                                                                      \
    switch (count) {                                                                               \
    case 12: call(12); break;                                                                      \
    case 11: call(11); break;                                                                      \
    case 10: call(10); break;                                                                      \
    case 9: call(9); break;                                                                        \
    case 8: call(8); break;                                                                        \
    case 7: call(7); break;                                                                        \
    case 6: call(6); break;                                                                        \
    case 5: call(5); break;                                                                        \
    case 4: call(4); break;                                                                        \
    case 3: call(3); break;                                                                        \
    case 2: call(2); break;                                                                        \
    default: call(1);                                                                              \
    }
#else
#define EXPORTED(name) name
#define WIDE 8
#define ROWS 6
#define FOR_ROWS(count, call)                                                                      \
    switch (count) {                                                                               \
    case 6: call(6); break;                                                                        \
    case 5: call(5); break;                                                                        \
    case 4: call(4); break;                                                                        \
    case 3: call(3); break;                                                                        \
    case 2: call(2); break;                                                                        \
    default: call(1);                                                                              \
    }
#endif

#define COLUMNS 16 /* of a tile */
#define VECTORS (COLUMNS / WIDE)
#define DEPTH 256 /* of a sum before the next tile: this much of a panel stays in the first cache */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE)));
typedef float eight __attribute__((vector_size(32), aligned(4)));

enum { NOTHING, RELU, TANH };

/* Where W [outputs, inputs] and b begin in theta (b: -1 for none), and what comes after. */
typedef struct {
    int64_t weight, bias, outputs, inputs, activation;
} layer;

typedef struct {
    const layer *layers;
    int64_t count, features; /* after so many layers; no more than zero if they are the scores */
} network;

/* How a step moves theta: velocity = keep velocity + gradient + pull (theta - start) + shift. */
typedef struct {
    const float *theta, *start, *shift; /* shift may be null */
    float *velocity, *out;              /* out may be theta, or null: nothing moves then */
    float keep, rate, pull;
} motion;

typedef struct {
    vec at[ROWS][VECTORS];
} tile;

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t panels_of(int64_t samples) { return (samples + COLUMNS - 1) / COLUMNS; }

/* sums += a b: rows of a are `row` apart, its columns `step`, and `jump` after every 16th. */
INLINE void multiply(const int count, const float *a, int64_t row, int64_t step, int64_t jump,
                     const float *b, int64_t depth, tile *sums) {
    tile s = *sums;
    for (int64_t from = 0; from < depth; from += COLUMNS, a += jump) {
        const int64_t length = smaller(COLUMNS, depth - from);
        const float *at = a;
        for (int64_t k = 0; k < length; k++, at += step, b += COLUMNS) {
            vec right[VECTORS];
            for (int j = 0; j < VECTORS; j++) right[j] = load(b + j * WIDE);
#pragma GCC unroll 12
            for (int i = 0; i < count; i++)
                for (int j = 0; j < VECTORS; j++) s.at[i][j] += at[i * row] * right[j];
        }
    }
    *sums = s;
}

INLINE vec rectified(vec x) {
    ivec below = x <= (vec){0}; /* false for NaN, which stays what it is */
    return (vec)((ivec)x & ~below);
}

INLINE vec tangent(vec x) {
    for (int i = 0; i < WIDE; i++) x[i] = tanhf(x[i]);
    return x;
}

INLINE vec activated(vec x, int64_t activation) {
    return activation == RELU ? rectified(x) : activation == TANH ? tangent(x) : x;
}

/* The derivative of an activation, from what came out of it, times `slope`. */
INLINE vec pulled(vec slope, vec after, int64_t activation) {
    if (activation == RELU) {
        ivec shut = after <= (vec){0};
        return (vec)((ivec)slope & ~shut);
    }
    return activation == TANH ? slope * (1.0f - after * after) : slope;
}

INLINE void forward_tile(const int count, const layer *l, const float *theta, int64_t first,
                         const float *in, int64_t from, int64_t depth, float *out) {
    const float *weight = theta + l->weight + first * l->inputs + from;
    const int last = from + depth == l->inputs;
    tile s = {{{{0}}}};
    for (int i = 0; i < count; i++)
        for (int j = 0; j < VECTORS; j++) {
            if (from) s.at[i][j] = load(out + i * COLUMNS + j * WIDE);
            else if (l->bias >= 0) s.at[i][j] += theta[l->bias + first + i];
        }
    multiply(count, weight, l->inputs, 1, COLUMNS, in + from * COLUMNS, depth, &s);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < VECTORS; j++) {
            vec value = s.at[i][j];
            if (last) value = activated(value, l->activation);
            store(out + i * COLUMNS + j * WIDE, value);
        }
}

static void forward_layer(const layer *l, const float *theta, const float *in, int64_t panels,
                          float *out) {
    for (int64_t p = 0; p < panels; p++)
        for (int64_t from = 0; from < l->inputs; from += DEPTH) {
            const float *panel = in + p * l->inputs * COLUMNS;
            const int64_t depth = smaller(DEPTH, l->inputs - from);
            for (int64_t o = 0; o < l->outputs; o += ROWS) {
                float *to = out + (p * l->outputs + o) * COLUMNS;
#define TILE_OF(n) forward_tile(n, l, theta, o, panel, from, depth, to)
                FOR_ROWS(smaller(ROWS, l->outputs - o), TILE_OF)
#undef TILE_OF
            }
        }
}

INLINE void back_tile(const int count, const layer *l, const float *theta, int64_t first,
                      const float *slope, int64_t from, int64_t depth, float *out) {
    const float *weight = theta + l->weight + from * l->inputs + first;
    tile s = {{{{0}}}};
    if (from)
        for (int i = 0; i < count; i++)
            for (int j = 0; j < VECTORS; j++) s.at[i][j] = load(out + i * COLUMNS + j * WIDE);
    multiply(count, weight, 1, l->inputs, COLUMNS * l->inputs, slope + from * COLUMNS, depth, &s);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < VECTORS; j++) store(out + i * COLUMNS + j * WIDE, s.at[i][j]);
}

/* out = W^T slope, in panels. */
static void back_layer(const layer *l, const float *theta, const float *slope, int64_t panels,
                       float *out) {
    for (int64_t p = 0; p < panels; p++)
        for (int64_t from = 0; from < l->outputs; from += DEPTH) {
            const float *panel = slope + p * l->outputs * COLUMNS;
            const int64_t depth = smaller(DEPTH, l->outputs - from);
            for (int64_t k = 0; k < l->inputs; k += ROWS) {
                float *to = out + (p * l->inputs + k) * COLUMNS;
#define TILE_OF(n) back_tile(n, l, theta, k, panel, from, depth, to)
                FOR_ROWS(smaller(ROWS, l->inputs - k), TILE_OF)
#undef TILE_OF
            }
        }
}

INLINE void move_one(const motion *m, int64_t at, float gradient) {
    float g = gradient;
    if (m->pull != 0.0f) g += m->pull * (m->theta[at] - m->start[at]);
    if (m->shift) g += m->shift[at];
    if (m->keep != 0.0f) g += m->keep * m->velocity[at];
    m->velocity[at] = g;
    if (m->out) m->out[at] = m->theta[at] - m->rate * g;
}

INLINE void move_vector(const motion *m, int64_t at, vec gradient) {
    vec g = gradient, theta = load(m->theta + at);
    if (m->pull != 0.0f) g += m->pull * (theta - load(m->start + at));
    if (m->shift) g += load(m->shift + at);
    if (m->keep != 0.0f) g += m->keep * load(m->velocity + at);
    store(m->velocity + at, g);
    if (m->out) store(m->out + at, theta - m->rate * g);
}

INLINE void gradient_tile(const int count, const motion *m, int64_t at, int64_t inputs,
                          int64_t width, const float *slope, int64_t outputs, const float *in,
                          int64_t samples) {
    tile s = {{{{0}}}};
    for (int i = 0; i < count; i++) { /* what the sums will be added to, in time */
        __builtin_prefetch(m->velocity + at + i * inputs, 1);
        __builtin_prefetch(m->theta + at + i * inputs, 1);
    }
    multiply(count, slope, COLUMNS, 1, outputs * COLUMNS, in, samples, &s);
    for (int i = 0; i < count; i++) {
        if (width == COLUMNS) {
            for (int j = 0; j < VECTORS; j++)
                move_vector(m, at + i * inputs + j * WIDE, s.at[i][j]);
        } else
            for (int64_t k = 0; k < width; k++)
                move_one(m, at + i * inputs + k, s.at[i][k / WIDE][k % WIDE]);
    }
}

/* Move W and b along slope in^T; `in` is [panel of inputs][sample][input]. */
static void move_layer(const layer *l, const motion *m, const float *slope, const float *in,
                       int64_t samples) {
    for (int64_t k = 0; k < l->inputs; k += COLUMNS) {
        const float *panel = in + k * samples;
        const int64_t width = smaller(COLUMNS, l->inputs - k);
        for (int64_t o = 0; o < l->outputs; o += ROWS) {
            const float *from = slope + o * COLUMNS;
            const int64_t at = l->weight + o * l->inputs + k;
#define TILE_OF(n) gradient_tile(n, m, at, l->inputs, width, from, l->outputs, panel, samples)
            FOR_ROWS(smaller(ROWS, l->outputs - o), TILE_OF)
#undef TILE_OF
        }
    }
    if (l->bias < 0) return;
    for (int64_t o = 0; o < l->outputs; o++) {
        eight sum = {0};
        for (int64_t p = 0; p < panels_of(samples); p++) {
            const float *row = slope + (p * l->outputs + o) * COLUMNS;
            sum += *(const eight *)row + *(const eight *)(row + COLUMNS / 2);
        }
        float total = ((sum[0] + sum[4]) + (sum[2] + sum[6])) +
                      ((sum[1] + sum[5]) + (sum[3] + sum[7]));
        move_one(m, l->bias + o, total);
    }
}

/* [sample][unit] to panels, or added to them. */
static void into_panels(const float *rows, int64_t samples, int64_t units, int add, float *out) {
    for (int64_t p = 0; p < panels_of(samples); p++)
        for (int64_t u = 0; u < units; u++)
            for (int64_t j = 0; j < COLUMNS; j++) {
                const int64_t i = p * COLUMNS + j;
                const float value = i < samples ? rows[i * units + u] : 0.0f;
                float *to = out + (p * units + u) * COLUMNS + j;
                *to = add ? *to + value : value;
            }
}

/* Panels to [sample][unit]. */
static void out_of_panels(const float *panels, int64_t samples, int64_t units, float *rows) {
    for (int64_t i = 0; i < samples; i++)
        for (int64_t u = 0; u < units; u++)
            rows[i * units + u] = panels[(i / COLUMNS * units + u) * COLUMNS + i % COLUMNS];
}

/* Panels to [panel of units][sample][unit], as `move_layer` wants its inputs. */
static void turned(const float *panels, int64_t samples, int64_t units, float *out) {
    for (int64_t k = 0; k < units; k += COLUMNS)
        for (int64_t i = 0; i < samples; i++, out += COLUMNS)
            for (int64_t j = 0; j < COLUMNS; j++)
                out[j] = k + j < units ? panels[(i / COLUMNS * units + k + j) * COLUMNS +
                                                i % COLUMNS]
                                       : 0.0f;
}

/* Lay out some rows of x [., inputs] twice: as panels of samples, and as panels of inputs. */
void EXPORTED(ebbflow_dense_inputs)(const float *x, const int64_t *rows, int64_t samples,
                                    int64_t inputs, float *by_sample, float *by_input) {
    for (int64_t p = 0; p < panels_of(samples); p++) {
        float *panel = by_sample + p * inputs * COLUMNS;
        const float *row[COLUMNS];
        const int64_t here = smaller(COLUMNS, samples - p * COLUMNS);
        for (int64_t j = 0; j < here; j++) row[j] = x + rows[p * COLUMNS + j] * inputs;
        for (int64_t k = 0; k < inputs; k++) {
            for (int64_t j = 0; j < here; j++) panel[k * COLUMNS + j] = row[j][k];
            for (int64_t j = here; j < COLUMNS; j++) panel[k * COLUMNS + j] = 0.0f;
        }
    }
    for (int64_t k = 0; k < inputs; k += COLUMNS) {
        const int64_t width = smaller(COLUMNS, inputs - k);
        for (int64_t i = 0; i < samples; i++, by_input += COLUMNS) {
            const float *from = x + rows[i] * inputs + k;
            for (int64_t j = 0; j < width; j++) by_input[j] = from[j];
            for (int64_t j = width; j < COLUMNS; j++) by_input[j] = 0.0f;
        }
    }
}

/* A forward pass: `values` are the panels of all layers, one after another. */
void EXPORTED(ebbflow_dense_forward)(const network *n, const float *theta, const float *by_sample,
                                     int64_t samples, float *values, float *scores,
                                     float *features) {
    const int64_t panels = panels_of(samples);
    const float *in = by_sample;
    for (int64_t i = 0; i < n->count; i++) {
        const layer *l = n->layers + i;
        forward_layer(l, theta, in, panels, values);
        if (features && i + 1 == n->features) out_of_panels(values, samples, l->outputs, features);
        in = values;
        values += panels * COLUMNS * l->outputs;
    }
    out_of_panels(in, samples, n->layers[n->count - 1].outputs, scores);
}

/* A backward pass from the loss's derivatives in the scores and, unless null, in the features,
 * which moves every layer on the way. Returns 0, or 1 if there is no memory. */
int EXPORTED(ebbflow_dense_backward)(const network *n, const float *by_input, int64_t samples,
                                     const float *values, const float *of_scores,
                                     const float *of_features, const motion *m) {
    const int64_t panels = panels_of(samples), length = panels * COLUMNS;
    int64_t widest = 0, before = 0;
    for (int64_t i = 0; i < n->count; i++) {
        const layer *l = n->layers + i;
        if (l->outputs > widest) widest = l->outputs;
        if (i) before += l[-1].outputs * length; /* of all layers except the last */
    }
    float *memory = malloc((size_t)(3 * (widest + COLUMNS) * length) * sizeof(float));
    if (!memory) return 1;
    float *slope = memory, *next = slope + widest * length, *in = next + widest * length;
    const layer *l = n->layers + n->count - 1;
    const float *after = values + before;
    into_panels(of_scores, samples, l->outputs, 0, slope);
    for (;; l--) {
        if (l->activation)
            for (int64_t k = 0; k < l->outputs * length; k += WIDE)
                store(slope + k, pulled(load(slope + k), load(after + k), l->activation));
        if (l == n->layers) break;
        after -= l[-1].outputs * length;
        back_layer(l, m->theta, slope, panels, next);
        if (of_features && l - n->layers == n->features)
            into_panels(of_features, samples, l->inputs, 1, next);
        turned(after, samples, l->inputs, in);
        move_layer(l, m, slope, in, samples);
        float *old = slope;
        slope = next;
        next = old;
    }
    move_layer(l, m, slope, by_input, samples);
    free(memory);
    return 0;
}

/* The derivative of the mini-batch's mean cross-entropy in every score, in their place. */
static void slopes(float *scores, const int64_t *labels, const int64_t *rows, int64_t samples,
                   int64_t classes) {
    const float weight = (float)(1.0 / (double)samples);
    for (int64_t i = 0; i < samples; i++) {
        float *z = scores + i * classes, most = z[0], sum = 0.0f;
        for (int64_t c = 1; c < classes; c++) most = z[c] > most ? z[c] : most;
        for (int64_t c = 0; c < classes; c++) sum += z[c] = expf(z[c] - most);
        for (int64_t c = 0; c < classes; c++) z[c] /= sum;
        z[labels[rows[i]]] -= 1.0f;
        for (int64_t c = 0; c < classes; c++) z[c] *= weight;
    }
}

/* All local steps of one device in every lane, by cross-entropy: each mini-batch is laid out once.
 * `ends` says where each step ends in `rows`. Every lane's motion begins with theta = start, and
 * leaves the trained model in `out`. Returns 0, or 1 if there is no memory. */
int EXPORTED(ebbflow_dense_train)(const network *n, const float *x, const int64_t *labels,
                                  const int64_t *rows, const int64_t *ends, int64_t steps,
                                  motion *lanes, int64_t lane_count, float momentum) {
    const int64_t inputs = n->layers[0].inputs, classes = n->layers[n->count - 1].outputs;
    int64_t largest = 0, units = 0;
    for (int64_t s = 0; s < steps; s++) {
        const int64_t samples = ends[s] - (s ? ends[s - 1] : 0);
        if (samples > largest) largest = samples;
    }
    for (int64_t i = 0; i < n->count; i++) units += n->layers[i].outputs;
    const int64_t length = panels_of(largest) * COLUMNS;
    const int64_t wide = panels_of(inputs) * COLUMNS;
    float *memory =
        malloc((size_t)(length * (inputs + wide + units + classes)) * sizeof(float));
    if (!memory) return 1;
    float *by_sample = memory, *by_input = by_sample + length * inputs;
    float *values = by_input + length * wide, *scores = values + length * units;
    int failed = 0;
    for (int64_t s = 0; s < steps && !failed; s++) {
        const int64_t *here = rows + (s ? ends[s - 1] : 0);
        const int64_t samples = rows + ends[s] - here;
        EXPORTED(ebbflow_dense_inputs)(x, here, samples, inputs, by_sample, by_input);
        for (int64_t i = 0; i < lane_count && !failed; i++) {
            motion m = lanes[i];
            m.theta = s ? m.out : m.start;
            m.keep = s ? momentum : 0.0f;
            EXPORTED(ebbflow_dense_forward)(n, m.theta, by_sample, samples, values, scores, 0);
            slopes(scores, labels, here, samples, classes);
            failed = EXPORTED(ebbflow_dense_backward)(n, by_input, samples, values, scores, 0, &m);
        }
    }
    free(memory);
    return failed;
}
