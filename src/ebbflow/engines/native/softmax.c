/* Softmax regression, trained on many devices and in many lanes in one call.
 *
 * The same mathematics as ebbflow/core/local.py with the model of ebbflow/models/softmax.py; what
 * is gained is that a sample is read from memory once, for all lanes and for both products.
 * A device's numbers depend on that device and lane alone: every sum has a fixed order, the same
 * with 256-bit and with 512-bit vectors. hatch_build.py compiles this file for both.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#define EXPORTED(name) name##_avx512
#else
#define EXPORTED(name) name
#endif

#define WIDE 8  /* numbers in a vector */
#define TILE 8  /* samples that are worked on together: their rows stay in the first cache */
#define GROUP 5 /* classes that are worked on together: as many sums as there are registers for */
#define LINE 16 /* numbers in a line of the cache */
#define EPSILON 1e-8f /* of torch's cosine_similarity */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDE)));

/* One method's side of the round. Pointers may be null where an algorithm has no such part. */
typedef struct {
    const float *theta;    /* where devices start, [parameters]: classes x inputs, then the bias */
    const float *shift;    /* added to every gradient, [devices, parameters] */
    const float *previous; /* MOON: the devices' own last models, [devices, parameters] */
    const float *seen;     /* MOON: whether a device has such a model, [devices] */
    const float *teacher;  /* distillation: the previous session's model, [parameters] */
    const uint8_t *known;  /* distillation, mixed target: whether the teacher knows a class */
    float *out;            /* the trained models, [devices, parameters] */
    float rate, pull;      /* eta; how strongly theta is drawn back to where it started */
    float mu, tau;         /* MOON */
    float kl, temperature; /* distillation */
} lane;

typedef struct {
    const float *x;        /* [samples, inputs] */
    const int64_t *labels; /* [samples] */
    const int64_t *rows;   /* the samples of every step of every device, one after another */
    const int64_t *steps;  /* where each step begins in rows, and where the last one ends */
    const int64_t *begins; /* which step is a device's first, and one more at the end */
    const lane *lanes;
    int64_t inputs, classes, lane_count, devices, largest; /* largest: samples in a step */
    double radius;         /* of the ball that theta stays in; zero for none */
    float momentum;
} work;

/* Where the numbers of one call are. A lane's parts follow those of the lane before it. */
typedef struct {
    float *x;                                /* the samples of a tile, see `lay_out` */
    float *weights, *velocity, *gradient;    /* [lanes][classes][width] */
    float *bias;                             /* [lanes][3][classes]: with velocity and gradient */
    float *frozen;                           /* [lanes][FROZEN]: weights, then bias */
    float *logits, *slope, *anchor, *target; /* of a tile, [samples][classes] */
    int64_t width, padded; /* inputs, and numbers per tile of outputs, filled up to whole vectors */
} room;

/* Models that a lane's devices only ask: where they started, their own last one, a teacher. */
enum { GLOBAL, PREVIOUS, TEACHER, FROZEN };

INLINE vec load(const float *from) { return *(const vec *)from; }

/* Which sample of a tile is in which place. Sums over a tile add up the even places and the odd
 * ones, each from the first to the last; the bits of all results depend on this order. */
static const int IN_PLACE[TILE] = {0, 3, 2, 1, 4, 5, 6, 7};

/* The rows of the next tile, which are fetched from memory while this one is worked on: two in
 * each pass over the inputs. Afterwards two that are there already. */
typedef struct {
    const float *rows[TILE + 2];
    int64_t begun;
} ahead;

INLINE const float *const *two_of(ahead *next) {
    const float *const *rows = (const float *const *)next->rows + next->begun;
    if (next->begun < TILE) next->begun += 2;
    return rows;
}

INLINE void fetch(const float *const *two, int64_t at) {
    __builtin_prefetch(two[0] + at, 0, 2);
    __builtin_prefetch(two[1] + at, 0, 2);
}

/* e^x for x <= 0 within two units in the last place; anything below -87 counts as -87. */
INLINE vec exponential(vec x) {
    const vec zero = {0};
    const vec low = zero - 87.0f;
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    ivec under = x < low; /* false for NaN, which stays what it is */
    x = (vec)(((ivec)low & under) | ((ivec)x & ~under));
    vec shifted = x * 1.44269504f + round;
    vec whole = shifted - round;
    vec r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    vec p = zero + 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    ivec power = ((ivec)shifted - 0x4B400000 + 127) << 23;
    return p * (vec)power;
}

#ifdef __AVX512F__

/* The samples of a tile in pairs of places: eight numbers of the even place, then eight of the odd
 * one; those before number `from` will be laid out by `dots`. Half a vector is then what a whole one is below, and every sum has the same order. */
INLINE void lay_out(const float *const *rows, int64_t samples, int64_t from, int64_t inputs,
                    int64_t width, float *x) {
    const int64_t whole = inputs / WIDE * WIDE, rest = inputs - whole;
    for (int place = 0; place < TILE; place++) {
        float *to = x + (place / 2) * 2 * width + (place % 2) * WIDE;
        if (IN_PLACE[place] >= samples) {
            for (int64_t k = from; k < width; k += WIDE) *(vec *)(to + 2 * k) = (vec){0};
            continue;
        }
        const float *row = rows[IN_PLACE[place]];
        for (int64_t k = from; k < whole; k += WIDE) *(vec *)(to + 2 * k) = load(row + k);
        if (rest) {
            memset(to + 2 * whole, 0, WIDE * 4);
            memcpy(to + 2 * whole, row + whole, (size_t)rest * 4);
        }
    }
}

/* The sums of both halves, each in the lowest place of its half. */
INLINE __m512 added(__m512 v) {
    v = _mm512_add_ps(v, _mm512_shuffle_f32x4(v, v, _MM_SHUFFLE(2, 3, 0, 1)));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm512_add_ps(v, _mm512_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1)));
}

/* What some numbers of a tile add to its scores. */
INLINE void dots_of(const int count, float *x, const float *const *rows, const float *weights,
                    int64_t width, int64_t from, int64_t to, const float *const *soon,
                    __m512 (*s)[TILE / 2]) {
    for (int64_t k = from; k < to; k += WIDE) {
        __m512 u[TILE / 2];
        for (int p = 0; p < TILE / 2; p++) {
            float *at = x + 2 * (p * width + k);
            if (rows) {
                const __m256 even = _mm256_loadu_ps(rows[IN_PLACE[2 * p]] + k);
                const __m256 odd = _mm256_loadu_ps(rows[IN_PLACE[2 * p + 1]] + k);
                u[p] = _mm512_insertf32x8(_mm512_castps256_ps512(even), odd, 1);
                _mm512_storeu_ps(at, u[p]);
            } else u[p] = _mm512_loadu_ps(at);
        }
        for (int c = 0; c < count; c++) {
            const __m512 w = _mm512_broadcast_f32x8(_mm256_loadu_ps(weights + c * width + k));
            for (int p = 0; p < TILE / 2; p++) s[c][p] = _mm512_fmadd_ps(u[p], w, s[c][p]);
        }
        fetch(soon, k);
    }
}

/* Scores of a tile for `count` classes. If there are `rows`, the tile is laid out from their first
 * `whole` numbers on the way. */
INLINE void dots(const int count, float *x, const float *const *rows, int64_t whole,
                 const float *weights, int64_t width, const float *const *soon,
                 float (*out)[GROUP]) {
    __m512 s[GROUP][TILE / 2];
    for (int c = 0; c < count; c++)
        for (int p = 0; p < TILE / 2; p++) s[c][p] = _mm512_setzero_ps();
    if (rows) dots_of(count, x, rows, weights, width, 0, whole, soon, s);
    dots_of(count, x, 0, weights, width, rows ? whole : 0, width, soon, s);
    for (int c = 0; c < count; c++)
        for (int p = 0; p < TILE / 2; p++) {
            const __m512 sums = added(s[c][p]);
            out[2 * p][c] = _mm512_cvtss_f32(sums);
            out[2 * p + 1][c] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sums, 2));
        }
}

/* gradient += slope^T x for a tile and `count` classes. */
INLINE void outers(const int count, const float *x, const float (*slope)[GROUP], int64_t width,
                   const float *const *soon, float *gradient) {
    __m512 s[GROUP][TILE / 2];
    for (int c = 0; c < count; c++)
        for (int p = 0; p < TILE / 2; p++)
            s[c][p] = _mm512_insertf32x8(_mm512_set1_ps(slope[2 * p][c]),
                                         _mm256_set1_ps(slope[2 * p + 1][c]), 1);
    for (int64_t k = 0; k < width; k += WIDE) {
        __m512 u[TILE / 2];
        for (int p = 0; p < TILE / 2; p++) u[p] = _mm512_loadu_ps(x + 2 * (p * width + k));
        for (int c = 0; c < count; c++) {
            float *g = gradient + c * width + k;
            __m512 sum = _mm512_zextps256_ps512(_mm256_loadu_ps(g));
            for (int p = 0; p < TILE / 2; p++) sum = _mm512_fmadd_ps(s[c][p], u[p], sum);
            _mm256_storeu_ps(g, _mm256_add_ps(_mm512_castps512_ps256(sum),
                                              _mm512_extractf32x8_ps(sum, 1)));
        }
        fetch(soon, k);
    }
}

#else

/* The samples of a tile, each filled up to whole vectors, and the tile to whole samples; numbers
 * before `from` will be laid out by `dots`. */
INLINE void lay_out(const float *const *rows, int64_t samples, int64_t from, int64_t inputs,
                    int64_t width, float *x) {
    for (int place = 0; place < TILE; place++, x += width) {
        const int64_t length = IN_PLACE[place] < samples ? inputs - from : 0;
        if (length) memcpy(x + from, rows[IN_PLACE[place]] + from, (size_t)length * 4);
        memset(x + from + length, 0, (size_t)(width - from - length) * 4);
    }
}

INLINE float added(vec v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* What some numbers of two samples of a tile add to their scores. */
INLINE void dots_of(const int count, float *x, const float *const *pair, const float *weights,
                    int64_t width, int64_t from, int64_t to, const float *const *soon, vec *a,
                    vec *b) {
    for (int64_t k = from; k < to; k += WIDE) {
        const vec u = load(pair ? pair[0] + k : x + k);
        const vec v = load(pair ? pair[1] + k : x + width + k);
        if (pair) {
            *(vec *)(x + k) = u;
            *(vec *)(x + width + k) = v;
        }
        for (int c = 0; c < count; c++) {
            vec w = load(weights + c * width + k);
            a[c] += u * w;
            b[c] += v * w;
        }
        fetch(soon, k);
    }
}

/* Scores of a tile for `count` classes. If there are `rows`, the tile is laid out from their first
 * `whole` numbers on the way. */
INLINE void dots(const int count, float *x, const float *const *rows, int64_t whole,
                 const float *weights, int64_t width, const float *const *soon,
                 float (*out)[GROUP]) {
    for (int i = 0; i < TILE; i += 2, x += 2 * width) {
        const float *const none[2] = {x, x};
        const float *const *two = i ? none : soon;
        vec a[GROUP] = {{0}}, b[GROUP] = {{0}};
        if (rows) {
            const float *const pair[2] = {rows[IN_PLACE[i]], rows[IN_PLACE[i + 1]]};
            dots_of(count, x, pair, weights, width, 0, whole, two, a, b);
        }
        dots_of(count, x, 0, weights, width, rows ? whole : 0, width, two, a, b);
        for (int c = 0; c < count; c++) {
            out[i][c] = added(a[c]);
            out[i + 1][c] = added(b[c]);
        }
    }
}

/* gradient += slope^T x for a tile and `count` classes. */
INLINE void outers(const int count, const float *x, const float (*slope)[GROUP], int64_t width,
                   const float *const *soon, float *gradient) {
    for (int c = 0; c < count; c++) {
        float *g = gradient + c * width;
        const float *row = x;
        const float *const none[2] = {x, x};
        const float *const *two = c ? none : soon;
        vec s[TILE];
        for (int i = 0; i < TILE; i++) s[i] = (vec){0} + slope[i][c];
        for (int64_t k = 0; k < width; k += WIDE, row += WIDE) {
            vec even = load(g + k), odd = {0};
            for (int i = 0; i < TILE; i += 2) {
                even += s[i] * load(row + i * width);
                odd += s[i + 1] * load(row + (i + 1) * width);
            }
            *(vec *)(g + k) = even + odd;
            fetch(two, k);
        }
    }
}

#endif

/* logits = x weights^T + bias for a tile, which is laid out on the way if there are `rows`. */
INLINE void scores(float *x, const float *const *rows, int64_t whole, int64_t samples,
                   const float *weights, const float *bias, int64_t width, int64_t classes,
                   ahead *next, float *logits) {
    float out[TILE][GROUP];
    for (int64_t c = 0; c < classes; c += GROUP, rows = 0) {
        const int count = classes - c < GROUP ? (int)(classes - c) : GROUP;
        const float *w = weights + c * width;
        const float *const *soon = two_of(next);
#define DOTS_OF(n)                                                                                 \
    if (rows) dots(n, x, rows, whole, w, width, soon, out);                                        \
    else dots(n, x, 0, 0, w, width, soon, out);                                                    \
    break;
        switch (count) {
        case 5: DOTS_OF(5)
        case 4: DOTS_OF(4)
        case 3: DOTS_OF(3)
        case 2: DOTS_OF(2)
        default: DOTS_OF(1)
        }
#undef DOTS_OF
        for (int place = 0; place < TILE; place++) {
            if (IN_PLACE[place] >= samples) continue;
            float *to = logits + IN_PLACE[place] * classes + c;
            for (int j = 0; j < count; j++) to[j] = out[place][j] + bias[c + j];
        }
    }
}

/* gradient += slope^T x for a tile. */
INLINE void outer(const float *x, int64_t samples, const float *slope, int64_t width,
                  int64_t classes, ahead *next, float *gradient) {
    float s[TILE][GROUP] = {{0}};
    for (int64_t c = 0; c < classes; c += GROUP) {
        const int count = classes - c < GROUP ? (int)(classes - c) : GROUP;
        const float *const *soon = two_of(next);
        float *g = gradient + c * width;
        for (int place = 0; place < TILE; place++)
            if (IN_PLACE[place] < samples)
                for (int j = 0; j < count; j++)
                    s[place][j] = slope[IN_PLACE[place] * classes + c + j];
        switch (count) {
        case 5: outers(5, x, s, width, soon, g); break;
        case 4: outers(4, x, s, width, soon, g); break;
        case 3: outers(3, x, s, width, soon, g); break;
        case 2: outers(2, x, s, width, soon, g); break;
        default: outers(1, x, s, width, soon, g);
        }
    }
}

/* Probabilities at a temperature; `padded` numbers may be written. */
INLINE void probabilities(const float *logits, int64_t samples, int64_t classes, int64_t padded,
                          float temperature, float *out) {
    for (int64_t i = 0; i < samples; i++) {
        const float *z = logits + i * classes;
        float most = z[0];
        for (int64_t c = 1; c < classes; c++) most = z[c] > most ? z[c] : most;
        for (int64_t c = 0; c < classes; c++)
            out[i * classes + c] = (z[c] - most) / temperature;
    }
    for (int64_t k = samples * classes; k < padded; k++) out[k] = 0.0f;
    for (int64_t k = 0; k < padded; k += WIDE) *(vec *)(out + k) = exponential(load(out + k));
    for (int64_t i = 0; i < samples; i++) {
        float sum = 0.0f;
        for (int64_t c = 0; c < classes; c++) sum += out[i * classes + c];
        for (int64_t c = 0; c < classes; c++) out[i * classes + c] /= sum;
    }
}

INLINE float norm(const float *z, int64_t classes) {
    float sum = 0.0f;
    for (int64_t c = 0; c < classes; c++) sum += z[c] * z[c];
    return sqrtf(sum);
}

/* slope += scale d cos(z, a)/dz; returns the cosine. Norms below epsilon count as epsilon. */
INLINE float cosine(const float *z, const float *a, int64_t classes, float *direction) {
    float length = norm(z, classes), other = norm(a, classes), inner = 0.0f;
    float bounded = length > EPSILON ? length : EPSILON;
    other = other > EPSILON ? other : EPSILON;
    for (int64_t c = 0; c < classes; c++) inner += z[c] * a[c];
    float alike = inner / (bounded * other);
    float along = length > EPSILON ? alike / (length * length) : 0.0f;
    for (int64_t c = 0; c < classes; c++)
        direction[c] = a[c] / (bounded * other) - along * z[c];
    return alike;
}

/* Add the derivative of mu softplus((cos(z, previous) - cos(z, global)) / tau) in z. */
INLINE void contrast(const float *logits, const float *global, const float *previous,
                     int64_t samples, int64_t classes, float mu, float tau, float *scratch,
                     float *slope) {
    float *towards = scratch, *away = scratch + classes;
    for (int64_t i = 0; i < samples; i++) {
        const float *z = logits + i * classes;
        float apart = cosine(z, previous + i * classes, classes, away) -
                      cosine(z, global + i * classes, classes, towards);
        float share = mu / tau / (1.0f + expf(-apart / tau));
        for (int64_t c = 0; c < classes; c++)
            slope[i * classes + c] += share * (away[c] - towards[c]);
    }
}

/* Lay a model out with whole vectors per class; its bias comes after them. */
INLINE void unpack(const float *theta, const room *r, int64_t inputs, int64_t classes,
                   float *weights, float *bias) {
    for (int64_t c = 0; c < classes; c++) {
        memcpy(weights + c * r->width, theta + c * inputs, (size_t)inputs * 4);
        memset(weights + c * r->width + inputs, 0, (size_t)(r->width - inputs) * 4);
    }
    memcpy(bias, theta + classes * inputs, (size_t)classes * 4);
}

/* Where one of a lane's frozen models is. */
INLINE float *frozen_at(const work *w, const room *r, int64_t number, int which) {
    return r->frozen + (number * FROZEN + which) * w->classes * (r->width + WIDE);
}

INLINE void freeze(const work *w, const room *r, int64_t number, int which, const float *theta) {
    float *weights = frozen_at(w, r, number, which);
    unpack(theta, r, w->inputs, w->classes, weights, weights + w->classes * r->width);
}

/* Scores of a tile under a frozen model. */
INLINE void asked(const work *w, const room *r, int64_t number, int which, int64_t samples,
                  ahead *next, float *logits) {
    const float *weights = frozen_at(w, r, number, which);
    scores(r->x, 0, 0, samples, weights, weights + w->classes * r->width, r->width, w->classes, next,
           logits);
}

/* The derivatives, in every score of a tile, of the mean loss of a mini-batch; 1 / `weight`
 * samples are in it. */
INLINE void slopes(const work *w, const room *r, int64_t number, int64_t device,
                   const int64_t *rows, int64_t samples, float weight, ahead *next) {
    const lane *l = w->lanes + number;
    const int64_t classes = w->classes;
    float *slope = r->slope, *target = r->target;
    probabilities(r->logits, samples, classes, r->padded, 1.0f, slope);
    for (int64_t i = 0; i < samples; i++) slope[i * classes + w->labels[rows[i]]] -= 1.0f;
    if (l->previous && l->seen[device] != 0.0f) {
        float scratch[2 * classes];
        asked(w, r, number, GLOBAL, samples, next, r->anchor);
        asked(w, r, number, PREVIOUS, samples, next, target);
        contrast(r->logits, r->anchor, target, samples, classes, l->mu * l->seen[device], l->tau,
                 scratch, slope);
    }
    if (l->teacher) {
        const float scale = l->kl * l->temperature;
        asked(w, r, number, TEACHER, samples, next, r->anchor);
        probabilities(r->anchor, samples, classes, r->padded, l->temperature, target);
        if (l->known) {
            for (int64_t i = 0; i < samples; i++) {
                float sum = 0.0f, *p = target + i * classes;
                for (int64_t c = 0; c < classes; c++) {
                    if (!l->known[c]) p[c] = c == w->labels[rows[i]] ? 1.0f : 0.0f;
                    sum += p[c];
                }
                for (int64_t c = 0; c < classes; c++) p[c] /= sum;
            }
        }
        probabilities(r->logits, samples, classes, r->padded, l->temperature, r->anchor);
        for (int64_t k = 0; k < samples * classes; k++)
            slope[k] += scale * (r->anchor[k] - target[k]);
    }
    for (int64_t k = 0; k < samples * classes; k++) slope[k] *= weight;
}

/* velocity = momentum velocity + gradient + pull (theta - start) + shift; theta -= rate velocity */
INLINE void move(float *theta, float *velocity, const float *gradient, const float *start,
                 const float *shift, int64_t count, float rate, float pull, float momentum) {
    for (int64_t k = 0; k < count; k++) {
        float g = gradient[k];
        if (pull != 0.0f) g += pull * (theta[k] - start[k]);
        if (shift) g += shift[k];
        velocity[k] = momentum * velocity[k] + g;
        theta[k] -= rate * velocity[k];
    }
}

INLINE void project(float *weights, float *bias, const work *w, int64_t width) {
    double sum = 0.0;
    for (int64_t c = 0; c < w->classes; c++) {
        for (int64_t k = 0; k < w->inputs; k++)
            sum += (double)weights[c * width + k] * weights[c * width + k];
        sum += (double)bias[c] * bias[c];
    }
    if (!(sqrt(sum) > w->radius)) return;
    const float factor = (float)(w->radius / sqrt(sum));
    for (int64_t k = 0; k < w->classes * width; k++) weights[k] *= factor;
    for (int64_t c = 0; c < w->classes; c++) bias[c] *= factor;
}

/* Add a tile's part of the gradient in every lane, while its samples are in the first cache. */
INLINE void one_tile(const work *w, const room *r, int64_t device, const int64_t *rows,
                     int64_t samples, float weight, ahead *next) {
    const int64_t classes = w->classes, width = r->width, size = classes * width;
    const float *at[TILE];
    for (int64_t i = 0; i < samples; i++) at[i] = w->x + rows[i] * w->inputs;
    /* A whole tile is laid out while the first scores are computed: memory is slow to answer. */
    const int64_t whole = samples < TILE ? 0 : w->inputs / WIDE * WIDE;
    lay_out(at, samples, whole, w->inputs, width, r->x);
    for (int64_t n = 0; n < w->lane_count; n++) {
        const float *bias = r->bias + n * 3 * classes;
        float *slant = r->bias + (n * 3 + 2) * classes;
        scores(r->x, whole && !n ? at : 0, whole, samples, r->weights + n * size, bias, width,
               classes, next, r->logits);
        slopes(w, r, n, device, rows, samples, weight, next);
        outer(r->x, samples, r->slope, width, classes, next, r->gradient + n * size);
        for (int64_t i = 0; i < samples; i++)
            for (int64_t c = 0; c < classes; c++) slant[c] += r->slope[i * classes + c];
    }
}

/* One local step; `rows` goes on with the samples of later steps up to `end`. */
INLINE void one_step(const work *w, const room *r, int64_t device, const int64_t *rows,
                     int64_t samples, const int64_t *end, int first) {
    const int64_t classes = w->classes, inputs = w->inputs, width = r->width;
    const int64_t size = classes * width, parameters = classes * (inputs + 1);
    const float weight = (float)(1.0 / (double)samples);
    memset(r->gradient, 0, (size_t)(w->lane_count * size) * 4);
    for (int64_t n = 0; n < w->lane_count; n++)
        memset(r->bias + (n * 3 + 2) * classes, 0, (size_t)classes * 4);
    for (int64_t i = 0; i < samples; i += TILE) {
        const int64_t count = samples - i < TILE ? samples - i : TILE;
        ahead next = {.begun = 0};
        for (int64_t j = 0; j < TILE + 2; j++) {
            const int64_t *later = rows + i + count + j;
            next.rows[j] = j < TILE && later < end ? w->x + *later * inputs : r->x;
        }
        one_tile(w, r, device, rows + i, count, weight, &next);
    }
    for (int64_t n = 0; n < w->lane_count; n++) {
        const lane *l = w->lanes + n;
        float *weights = r->weights + n * size, *velocity = r->velocity + n * size;
        float *bias = r->bias + n * 3 * classes, *pace = bias + classes, *slant = pace + classes;
        if (first) {
            memset(velocity, 0, (size_t)size * 4);
            memset(pace, 0, (size_t)classes * 4);
        }
        const float *shift = l->shift ? l->shift + device * parameters : 0;
        for (int64_t c = 0; c < classes; c++)
            move(weights + c * width, velocity + c * width, r->gradient + n * size + c * width,
                 l->theta + c * inputs, shift ? shift + c * inputs : 0, inputs, l->rate, l->pull,
                 w->momentum);
        move(bias, pace, slant, l->theta + classes * inputs, shift ? shift + classes * inputs : 0,
             classes, l->rate, l->pull, w->momentum);
        if (w->radius > 0.0) project(weights, bias, w, width);
    }
}

/* Lay out what a device begins with. */
INLINE void begin(const work *w, const room *r, int64_t device) {
    const int64_t size = w->classes * r->width, parameters = w->classes * (w->inputs + 1);
    for (int64_t n = 0; n < w->lane_count; n++) {
        const lane *l = w->lanes + n;
        unpack(l->theta, r, w->inputs, w->classes, r->weights + n * size,
               r->bias + n * 3 * w->classes);
        if (l->previous && l->seen[device] != 0.0f) {
            freeze(w, r, n, GLOBAL, l->theta);
            freeze(w, r, n, PREVIOUS, l->previous + device * parameters);
        }
        if (l->teacher) freeze(w, r, n, TEACHER, l->teacher);
    }
}

/* The next `count` numbers of the memory that `at` points to, from the beginning of a line on. */
INLINE float *taken(float **at, int64_t count) {
    float *here = *at;
    *at += (count + LINE - 1) / LINE * LINE;
    return here;
}

/* Train every device in every lane. Returns 0, or 1 if there is no memory. */
int EXPORTED(ebbflow_softmax)(const work *w) {
    room r;
    const int64_t classes = w->classes, lanes = w->lane_count;
    int asks = 0;
    for (int64_t n = 0; n < lanes; n++) asks |= w->lanes[n].previous || w->lanes[n].teacher;
    r.width = (w->inputs + WIDE - 1) / WIDE * WIDE;
    r.padded = (TILE * classes + WIDE - 1) / WIDE * WIDE;
    const int64_t size = classes * r.width;
    const int64_t frozen = asks ? lanes * FROZEN * classes * (r.width + WIDE) : 0;
    const int64_t total = TILE * r.width + 3 * lanes * size + 3 * lanes * classes + frozen +
                          4 * r.padded + 10 * LINE;
    float *memory = malloc((size_t)total * 4 + 4 * LINE);
    if (!memory) return 1;
    float *at = (float *)(((uintptr_t)memory + 4 * LINE - 1) / (4 * LINE) * (4 * LINE));
    r.x = taken(&at, TILE * r.width);
    r.weights = taken(&at, lanes * size);
    r.velocity = taken(&at, lanes * size);
    r.gradient = taken(&at, lanes * size);
    r.frozen = taken(&at, frozen);
    r.logits = taken(&at, r.padded);
    r.slope = taken(&at, r.padded);
    r.anchor = taken(&at, r.padded);
    r.target = taken(&at, r.padded);
    r.bias = taken(&at, 3 * lanes * classes);
    const int64_t *end = w->rows + w->steps[w->begins[w->devices]];
    for (int64_t d = 0; d < w->devices; d++) {
        begin(w, &r, d);
        for (int64_t s = w->begins[d]; s < w->begins[d + 1]; s++)
            one_step(w, &r, d, w->rows + w->steps[s], w->steps[s + 1] - w->steps[s], end,
                     s == w->begins[d]);
        for (int64_t n = 0; n < lanes; n++) {
            float *out = w->lanes[n].out + d * classes * (w->inputs + 1);
            for (int64_t c = 0; c < classes; c++)
                memcpy(out + c * w->inputs, r.weights + n * size + c * r.width,
                       (size_t)w->inputs * 4);
            memcpy(out + classes * w->inputs, r.bias + n * 3 * classes, (size_t)classes * 4);
        }
    }
    free(memory);
    return 0;
}
