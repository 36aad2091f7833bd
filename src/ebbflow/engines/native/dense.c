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
#define WIDE 16  /* numbers in a vector */
#define ROWS 12  /* of a tile: as many as there are registers for, with what is multiplied */
#define PANELS 2 /* of a tile: what is read of one factor is used for both */
#define FOR_ROWS(count, call, n)                                                                   \
    switch (count) {                                                                               \
    case 12: call(12, n); break;                                                                   \
    case 11: call(11, n); break;                                                                   \
    case 10: call(10, n); break;                                                                   \
    case 9: call(9, n); break;                                                                     \
    case 8: call(8, n); break;                                                                     \
    case 7: call(7, n); break;                                                                     \
    case 6: call(6, n); break;                                                                     \
    case 5: call(5, n); break;                                                                     \
    case 4: call(4, n); break;                                                                     \
    case 3: call(3, n); break;                                                                     \
    case 2: call(2, n); break;                                                                     \
    default: call(1, n);                                                                           \
    }
#else
#define EXPORTED(name) name
#define WIDE 8
#define ROWS 6
#define PANELS 1
#define FOR_ROWS(count, call, n)                                                                   \
    switch (count) {                                                                               \
    case 6: call(6, n); break;                                                                     \
    case 5: call(5, n); break;                                                                     \
    case 4: call(4, n); break;                                                                     \
    case 3: call(3, n); break;                                                                     \
    case 2: call(2, n); break;                                                                     \
    default: call(1, n);                                                                           \
    }
#endif

#define COLUMNS 16 /* of a panel */
#define PARTS (COLUMNS / WIDE)
#define VECTORS (PANELS * PARTS) /* of a tile's row */
#define DEPTH 256 /* of a sum before the next tile: this much of a panel stays in the first cache */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE)));
typedef float eight __attribute__((vector_size(32), aligned(4)));

enum { NOTHING, RELU, TANH };
enum { LINEAR, NORMALISED, MASKED };

/* What a stage does to the units of the one before, of which it makes `outputs`, and the activation
 * that comes after. Weight and bias begin in theta there (-1 for none), running means and variances
 * in the buffers. A linear one is W [outputs, inputs] h + b. */
typedef struct {
    int64_t kind, weight, bias, outputs, inputs, activation;
    int64_t mean, variance;   /* of a normalised one */
    double epsilon, momentum; /* likewise */
    int64_t place;            /* of a masked one: which of a sample's draws decides */
    double share;             /* likewise: of the units that are dropped */
} layer;

typedef struct {
    const layer *layers;
    int64_t count, features; /* after so many layers; no more than zero if they are the scores */
    int64_t draws;           /* of a sample: noise is [samples, draws] */
} network;

/* How a step moves theta: velocity = keep velocity + gradient + pull (theta - start) + shift. */
typedef struct {
    const float *theta, *start, *shift; /* shift may be null */
    float *velocity, *out;              /* out may be theta, or null: nothing moves then */
    float *buffers;                     /* brought up to date by the passes of ebbflow_dense_train */
    float keep, rate, pull;
} motion;

typedef struct {
    vec at[ROWS][VECTORS];
} tile;

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t panels_of(int64_t samples) { return (samples + COLUMNS - 1) / COLUMNS; }

/* Where a vector of a tile's row lies, if its panels are `apart`. */
INLINE int64_t place_of(int vector, int64_t apart) {
    return vector / PARTS * apart + vector % PARTS * WIDE;
}

/* sums += a b: rows of a are `row` apart, its columns `step`, and `jump` after every 16th. Of b
 * there are so many panels, `apart` from each other. */
INLINE void multiply(const int count, const int panels, const float *a, int64_t row, int64_t step,
                     int64_t jump, const float *b, int64_t apart, int64_t depth, tile *sums) {
    tile s;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < panels * PARTS; j++) s.at[i][j] = sums->at[i][j];
    for (int64_t from = 0; from < depth; from += COLUMNS, a += jump) {
        const int64_t length = smaller(COLUMNS, depth - from);
        const float *at = a;
        for (int64_t k = 0; k < length; k++, at += step, b += COLUMNS) {
            vec right[VECTORS];
            for (int j = 0; j < panels * PARTS; j++) right[j] = load(b + place_of(j, apart));
#pragma GCC unroll 12
            for (int i = 0; i < count; i++)
                for (int j = 0; j < panels * PARTS; j++) s.at[i][j] += at[i * row] * right[j];
        }
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < panels * PARTS; j++) sums->at[i][j] = s.at[i][j];
}

/* The tiles of all rows of a factor, for one panel or for as many as a tile has room for: `call`
 * is a macro of the number of rows in a tile and of panels, and reads where the tile begins. */
#define ALL_TILES(rows, panels, call)                                                              \
    for (int64_t first = 0; first < rows; first += ROWS) {                                         \
        if (panels < PANELS) { FOR_ROWS(smaller(ROWS, rows - first), call, 1) }                    \
        else { FOR_ROWS(smaller(ROWS, rows - first), call, PANELS) }                               \
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

INLINE void forward_tile(const int count, const int panels, const layer *l, const float *theta,
                         int64_t first, const float *in, int64_t from, int64_t depth, float *out) {
    const float *weight = theta + l->weight + first * l->inputs + from;
    const int64_t apart = l->outputs * COLUMNS;
    const int last = from + depth == l->inputs;
    tile s;
    out += first * COLUMNS;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < panels * PARTS; j++) {
            if (from) s.at[i][j] = load(out + i * COLUMNS + place_of(j, apart));
            else s.at[i][j] = (vec){0} + (l->bias >= 0 ? theta[l->bias + first + i] : 0.0f);
        }
    multiply(count, panels, weight, l->inputs, 1, COLUMNS, in + from * COLUMNS,
             l->inputs * COLUMNS, depth, &s);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < panels * PARTS; j++) {
            vec value = s.at[i][j];
            if (last) value = activated(value, l->activation);
            store(out + i * COLUMNS + place_of(j, apart), value);
        }
}

static void forward_layer(const layer *l, const float *theta, const float *in, int64_t panels,
                          float *out) {
    for (int64_t p = 0; p < panels; p += PANELS) {
        const float *panel = in + p * l->inputs * COLUMNS;
        float *to = out + p * l->outputs * COLUMNS;
        for (int64_t from = 0; from < l->inputs; from += DEPTH) {
            const int64_t depth = smaller(DEPTH, l->inputs - from);
#define TILE_OF(n, m) forward_tile(n, m, l, theta, first, panel, from, depth, to)
            ALL_TILES(l->outputs, panels - p, TILE_OF)
#undef TILE_OF
        }
    }
}

INLINE void back_tile(const int count, const int panels, const layer *l, const float *theta,
                      int64_t first, const float *slope, int64_t from, int64_t depth, float *out) {
    const float *weight = theta + l->weight + from * l->inputs + first;
    const int64_t apart = l->inputs * COLUMNS;
    tile s;
    out += first * COLUMNS;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < panels * PARTS; j++) {
            const float *to = out + i * COLUMNS + place_of(j, apart);
            s.at[i][j] = from ? load(to) : (vec){0};
        }
    multiply(count, panels, weight, 1, l->inputs, COLUMNS * l->inputs, slope + from * COLUMNS,
             l->outputs * COLUMNS, depth, &s);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < panels * PARTS; j++)
            store(out + i * COLUMNS + place_of(j, apart), s.at[i][j]);
}

/* out = W^T slope, in panels. */
static void back_layer(const layer *l, const float *theta, const float *slope, int64_t panels,
                       float *out) {
    for (int64_t p = 0; p < panels; p += PANELS) {
        const float *panel = slope + p * l->outputs * COLUMNS;
        float *to = out + p * l->inputs * COLUMNS;
        for (int64_t from = 0; from < l->outputs; from += DEPTH) {
            const int64_t depth = smaller(DEPTH, l->outputs - from);
#define TILE_OF(n, m) back_tile(n, m, l, theta, first, panel, from, depth, to)
            ALL_TILES(l->inputs, panels - p, TILE_OF)
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

INLINE void gradient_tile(const int count, const int panels, const layer *l, const motion *m,
                          int64_t first, int64_t k, const float *slope, const float *in,
                          int64_t samples) {
    const int64_t at = l->weight + first * l->inputs + k;
    tile s;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < panels; p++) { /* what the sums will be added to, in time */
            for (int j = p * PARTS; j < (p + 1) * PARTS; j++) s.at[i][j] = (vec){0};
            __builtin_prefetch(m->velocity + at + i * l->inputs + p * COLUMNS, 1);
            __builtin_prefetch(m->theta + at + i * l->inputs + p * COLUMNS, 1);
        }
    multiply(count, panels, slope + first * COLUMNS, COLUMNS, 1, l->outputs * COLUMNS, in,
             samples * COLUMNS, samples, &s);
    for (int i = 0; i < count; i++) {
        const int64_t row = at + i * l->inputs, width = l->inputs - k;
        for (int j = 0; j < panels * PARTS; j++) {
            if ((j + 1) * WIDE <= width) move_vector(m, row + j * WIDE, s.at[i][j]);
            else
                for (int64_t c = j * WIDE; c < width; c++)
                    move_one(m, row + c, s.at[i][j][c - j * WIDE]);
        }
    }
}

INLINE float added(eight s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Move W and b along slope in^T; `in` is [panel of inputs][sample][input]. */
static void move_layer(const layer *l, const motion *m, const float *slope, const float *in,
                       int64_t samples) {
    const int64_t panels = panels_of(l->inputs);
    for (int64_t p = 0; p < panels; p += PANELS) {
        const float *panel = in + p * COLUMNS * samples;
#define TILE_OF(n, count) gradient_tile(n, count, l, m, first, p * COLUMNS, slope, panel, samples)
        ALL_TILES(l->outputs, panels - p, TILE_OF)
#undef TILE_OF
    }
    if (l->bias < 0) return;
    for (int64_t o = 0; o < l->outputs; o++) {
        eight sum = {0};
        for (int64_t p = 0; p < panels_of(samples); p++) {
            const float *row = slope + (p * l->outputs + o) * COLUMNS;
            sum += *(const eight *)row + *(const eight *)(row + COLUMNS / 2);
        }
        move_one(m, l->bias + o, added(sum));
    }
}

/* Half of a panel's row: samples that do not exist count nothing. */
INLINE eight existing(eight values, int64_t samples) {
    if (samples >= 8) return values;
    for (int64_t j = samples > 0 ? samples : 0; j < 8; j++) values[j] = 0.0f;
    return values;
}

/* The mean over a mini-batch of one unit, and the sum of squares around it. */
INLINE void moments(const float *in, int64_t units, int64_t samples, float *mean, float *squares) {
    eight sum = {0}, around = {0};
    for (int64_t i = 0; i < samples; i += 8) {
        const float *at = in + i / COLUMNS * units * COLUMNS + i % COLUMNS;
        sum += existing(*(const eight *)at, samples - i);
    }
    *mean = added(sum) / (float)samples;
    for (int64_t i = 0; i < samples; i += 8) {
        const float *at = in + i / COLUMNS * units * COLUMNS + i % COLUMNS;
        const eight off = existing(*(const eight *)at - *mean, samples - i);
        around += off * off;
    }
    *squares = added(around);
}

INLINE float one_by_deviation(const layer *l, float variance) {
    return 1.0f / sqrtf(variance + (float)l->epsilon);
}

/* out = (in - mean) / deviation times weight, plus bias. In training the moments are those of the
 * mini-batch, which the buffers follow; else they are those of the buffers. */
static void normalise(const layer *l, const float *theta, float *buffers, int train,
                      const float *in, int64_t samples, float *out) {
    const int64_t units = l->outputs, panels = panels_of(samples);
    const float m = (float)l->momentum;
    for (int64_t u = 0; u < units; u++, in += COLUMNS, out += COLUMNS) {
        float mean = buffers[l->mean + u], variance = buffers[l->variance + u], squares;
        if (train) {
            const float mean_so_far = mean, variance_so_far = variance;
            moments(in, units, samples, &mean, &squares);
            variance = squares / (float)samples;
            buffers[l->mean + u] = (1.0f - m) * mean_so_far + m * mean;
            buffers[l->variance + u] =
                (1.0f - m) * variance_so_far + m * (squares / (float)(samples - 1));
        }
        float scale = one_by_deviation(l, variance);
        if (l->weight >= 0) scale *= theta[l->weight + u];
        const float offset = (l->bias >= 0 ? theta[l->bias + u] : 0.0f) - mean * scale;
        for (int64_t p = 0; p < panels; p++)
            for (int j = 0; j < COLUMNS; j += WIDE) {
                const int64_t at = p * units * COLUMNS + j;
                store(out + at, activated(load(in + at) * scale + offset, l->activation));
            }
    }
}

/* Move weight and bias of a normalised stage, and return the slope before it in `out`. */
static void back_normalised(const layer *l, const motion *m, const float *in, const float *slope,
                            int64_t samples, float *out) {
    const int64_t units = l->outputs;
    for (int64_t u = 0; u < units; u++, in += COLUMNS, slope += COLUMNS, out += COLUMNS) {
        float mean, squares;
        moments(in, units, samples, &mean, &squares);
        const float deviation = one_by_deviation(l, squares / (float)samples);
        eight sum = {0}, along = {0};
        for (int64_t i = 0; i < samples; i += 8) {
            const int64_t at = i / COLUMNS * units * COLUMNS + i % COLUMNS;
            const eight s = *(const eight *)(slope + at); /* zero where there is no sample */
            sum += s;
            along += s * (*(const eight *)(in + at) - mean);
        }
        const float of_bias = added(sum), of_weight = added(along) * deviation;
        const float weight = l->weight >= 0 ? m->theta[l->weight + u] : 1.0f;
        const float share = of_bias / (float)samples, scale = weight * deviation;
        const float slant = of_weight * deviation / (float)samples;
        for (int64_t i = 0; i < panels_of(samples) * COLUMNS; i += 8) {
            const int64_t at = i / COLUMNS * units * COLUMNS + i % COLUMNS;
            const eight off = *(const eight *)(in + at) - mean;
            const eight s = *(const eight *)(slope + at) - share - off * slant;
            *(eight *)(out + at) = existing(s * scale, samples - i);
        }
        if (l->weight >= 0) move_one(m, l->weight + u, of_weight);
        if (l->bias >= 0) move_one(m, l->bias + u, of_bias);
    }
}

/* out = in times zero where a unit is dropped, and what makes up for that elsewhere: a function of
 * the sample's draw, the stage and the unit, as in ebbflow/models/dropout.py. */
static void masked(const layer *l, const float *noise, int64_t draws, int64_t samples,
                   const float *in, float *out) {
    const uint64_t golden = 0x9e3779b97f4a7c15u, first = 0xbf58476d1ce4e5b9u,
                   second = 0x94d049bb133111ebu;
    const float least = (float)(l->share * 16777216.0);
    const float rest = l->share < 1.0 ? 1.0f / (float)(1.0 - l->share) : 0.0f;
    for (int64_t p = 0; p < panels_of(samples); p++) {
        uint64_t seeds[COLUMNS] = {0};
        for (int64_t j = 0; j < smaller(COLUMNS, samples - p * COLUMNS); j++) {
            const float draw = noise[(p * COLUMNS + j) * draws + l->place];
            seeds[j] = (uint64_t)(int64_t)((double)draw * 16777216.0) * golden +
                       (uint64_t)(l->place + 1) * first;
        }
        for (int64_t u = 0; u < l->outputs; u++, in += COLUMNS, out += COLUMNS)
            for (int j = 0; j < COLUMNS; j++) {
                uint64_t mixed = seeds[j] ^ ((uint64_t)u * second);
                mixed = (mixed ^ (uint64_t)((int64_t)mixed >> 30)) * second;
                mixed = (mixed ^ (uint64_t)((int64_t)mixed >> 27)) * first;
                mixed = (mixed ^ (uint64_t)((int64_t)mixed >> 31)) * golden;
                const float drawn = (float)(int32_t)((mixed >> 39) & 0xffffffu);
                out[j] = in[j] * (drawn >= least ? rest : 0.0f);
            }
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

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#endif
#endif

/* out[k * COLUMNS + j] = rows[j][k], for eight rows and eight numbers of each. */
INLINE void turned_eight(const float *const *rows, int64_t from, float *out) {
#ifdef SHUFFLES
#define MIXED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
    eight pairs[8], fours[8];
    for (int j = 0; j < 8; j += 2) {
        const eight a = *(const eight *)(rows[j] + from), b = *(const eight *)(rows[j + 1] + from);
        pairs[j] = MIXED(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[j + 1] = MIXED(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int half = 0; half < 8; half += 4)
        for (int j = half; j < half + 2; j++) {
            fours[half + 2 * (j - half)] = MIXED(pairs[j], pairs[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            fours[half + 2 * (j - half) + 1] =
                MIXED(pairs[j], pairs[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int k = 0; k < 4; k++) {
        eight *low = (eight *)(out + k * COLUMNS), *high = (eight *)(out + (k + 4) * COLUMNS);
        *low = MIXED(fours[k], fours[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *high = MIXED(fours[k], fours[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
#undef MIXED
#else
    for (int k = 0; k < 8; k++)
        for (int j = 0; j < 8; j++) out[k * COLUMNS + j] = rows[j][from + k];
#endif
}

/* out[k * COLUMNS + j] = row[j][from + k] for `width` numbers of 16 rows, of which `here` exist. */
INLINE void turned_rows(const float *const *row, int64_t here, int64_t from, int64_t width,
                        float *out) {
    for (int64_t j = 0; j < COLUMNS; j += 8)
        for (int64_t k = 0; k < width; k += 8) {
            if (j + 8 <= here && k + 8 <= width) {
                turned_eight(row + j, from + k, out + k * COLUMNS + j);
                continue;
            }
            for (int64_t c = k; c < smaller(k + 8, width); c++)
                for (int64_t r = j; r < j + 8; r++)
                    out[c * COLUMNS + r] = r < here ? row[r][from + c] : 0.0f;
        }
}

/* Lay out some rows of x [., inputs] twice: as panels of samples, and as panels of inputs. */
void EXPORTED(ebbflow_dense_inputs)(const float *x, const int64_t *rows, int64_t samples,
                                    int64_t inputs, float *by_sample, float *by_input) {
    for (int64_t first = 0; first < samples; first += COLUMNS, by_sample += inputs * COLUMNS) {
        const float *row[COLUMNS];
        const int64_t here = smaller(COLUMNS, samples - first);
        for (int64_t j = 0; j < here; j++) row[j] = x + rows[first + j] * inputs;
        for (int64_t k = 0; k < inputs; k += COLUMNS) {
            const int64_t width = smaller(COLUMNS, inputs - k);
            float *to = by_input + k * samples + first * COLUMNS;
            for (int64_t j = 0; j < here; j++, to += COLUMNS) {
                const float *from = row[j] + k;
                if (width == COLUMNS) memcpy(to, from, COLUMNS * sizeof(float));
                else
                    for (int64_t c = 0; c < COLUMNS; c++) to[c] = c < width ? from[c] : 0.0f;
            }
            turned_rows(row, here, k, width, by_sample + k * COLUMNS);
        }
    }
}

/* A forward pass: `values` are the panels of all layers, one after another. In training, units are
 * dropped if there is noise, and the buffers follow the mini-batch. */
void EXPORTED(ebbflow_dense_forward)(const network *n, const float *theta, float *buffers,
                                     int train, const float *by_sample, const float *noise,
                                     int64_t samples, float *values, float *scores,
                                     float *features) {
    const int64_t panels = panels_of(samples);
    const float *in = by_sample;
    for (int64_t i = 0; i < n->count; i++) {
        const layer *l = n->layers + i;
        const int64_t length = panels * COLUMNS * l->outputs;
        if (l->kind == LINEAR) forward_layer(l, theta, in, panels, values);
        else if (l->kind == NORMALISED) normalise(l, theta, buffers, train, in, samples, values);
        else if (train && noise) masked(l, noise, n->draws, samples, in, values);
        else memcpy(values, in, (size_t)length * sizeof(float));
        if (features && i + 1 == n->features) out_of_panels(values, samples, l->outputs, features);
        in = values;
        values += length;
    }
    out_of_panels(in, samples, n->layers[n->count - 1].outputs, scores);
}

/* The scores of rows of x [samples, inputs] one after another, as in a test: nothing is dropped, and
 * the buffers stay as they are. Returns 0, or 1 if there is no memory. */
int EXPORTED(ebbflow_dense_scores)(const network *n, const float *theta, float *buffers,
                                   const float *x, int64_t samples, float *scores) {
    const int64_t inputs = n->layers[0].inputs, classes = n->layers[n->count - 1].outputs;
    const int64_t block = PANELS * COLUMNS; /* read by a tile: it goes through while in the cache */
    int64_t units = 0;
    for (int64_t i = 0; i < n->count; i++) units += n->layers[i].outputs;
    float *memory = malloc((size_t)(block * (inputs + units)) * sizeof(float));
    if (!memory) return 1;
    float *by_sample = memory, *values = by_sample + block * inputs;
    for (int64_t first = 0; first < samples; first += block) {
        const int64_t here = smaller(block, samples - first);
        for (int64_t at = 0; at < here; at += COLUMNS) {
            const float *row[COLUMNS];
            const int64_t rows = smaller(COLUMNS, here - at);
            for (int64_t j = 0; j < rows; j++) row[j] = x + (first + at + j) * inputs;
            for (int64_t k = 0; k < inputs; k += COLUMNS)
                turned_rows(row, rows, k, smaller(COLUMNS, inputs - k),
                            by_sample + (at * inputs + k * COLUMNS));
        }
        EXPORTED(ebbflow_dense_forward)(n, theta, buffers, 0, by_sample, 0, here, values,
                                        scores + first * classes, 0);
    }
    free(memory);
    return 0;
}

/* A backward pass of a training pass from the loss's derivatives in the scores and, unless null, in
 * the features, which moves every layer on the way. Returns 0, or 1 if there is no memory. */
int EXPORTED(ebbflow_dense_backward)(const network *n, const float *by_input, const float *noise,
                                     int64_t samples, const float *values,
                                     const float *of_scores, const float *of_features,
                                     const motion *m) {
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
        if (l == n->layers) break; /* the first one is linear */
        after -= l[-1].outputs * length;
        if (l->kind == LINEAR) {
            back_layer(l, m->theta, slope, panels, next);
            turned(after, samples, l->inputs, in);
            move_layer(l, m, slope, in, samples);
        } else if (l->kind == NORMALISED)
            back_normalised(l, m, after, slope, samples, next);
        else if (noise) masked(l, noise, n->draws, samples, slope, next);
        else memcpy(next, slope, (size_t)(l->outputs * length) * sizeof(float));
        if (of_features && l - n->layers == n->features)
            into_panels(of_features, samples, l->inputs, 1, next);
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
 * `ends` says where each step ends in `rows`; the noise is that of these rows, or null. Every lane's
 * motion begins with theta = start, and leaves the trained model in `out`. Returns 0, or 1 if there
 * is no memory. */
int EXPORTED(ebbflow_dense_train)(const network *n, const float *x, const int64_t *labels,
                                  const int64_t *rows, const int64_t *ends, int64_t steps,
                                  const float *noise, motion *lanes, int64_t lane_count,
                                  float momentum) {
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
        const float *drawn = noise ? noise + (here - rows) * n->draws : 0;
        EXPORTED(ebbflow_dense_inputs)(x, here, samples, inputs, by_sample, by_input);
        for (int64_t i = 0; i < lane_count && !failed; i++) {
            motion m = lanes[i];
            m.theta = s ? m.out : m.start;
            m.keep = s ? momentum : 0.0f;
            EXPORTED(ebbflow_dense_forward)(n, m.theta, m.buffers, 1, by_sample, drawn, samples,
                                            values, scores, 0);
            slopes(scores, labels, here, samples, classes);
            failed = EXPORTED(ebbflow_dense_backward)(n, by_input, drawn, samples, values, scores,
                                                      0, &m);
        }
    }
    free(memory);
    return failed;
}
