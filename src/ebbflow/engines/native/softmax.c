/* Softmax regression, trained on many devices and in many lanes in one call.
 *
 * The same mathematics as ebbflow/core/local.py with the model of ebbflow/models/softmax.py; what
 * is gained is that a mini-batch is read from memory once, for all lanes and for both products.
 * A device's numbers depend on that device and lane alone: every sum has a fixed order.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WIDE 8  /* numbers in a vector */
#define TILE 8  /* samples that are worked on together: their rows stay in the first cache */
#define GROUP 5 /* classes that are worked on together: as many sums as there are registers for */
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

typedef struct {
    float *x, *weights, *velocity, *gradient, *bias, *logits, *slope, *anchor, *target;
    int64_t width, padded; /* inputs, and numbers per step of outputs, filled up to whole vectors */
} room;

INLINE vec load(const float *from) { return *(const vec *)from; }

INLINE float added(vec v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
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

/* Scores of two samples for `count` classes. */
INLINE void dots(const int count, const float *x0, const float *x1, const float *weights,
                 int64_t width, float *out0, float *out1) {
    vec a[GROUP] = {{0}}, b[GROUP] = {{0}};
    for (int64_t k = 0; k < width; k += WIDE) {
        vec u = load(x0 + k), v = load(x1 + k);
        for (int c = 0; c < count; c++) {
            vec w = load(weights + c * width + k);
            a[c] += u * w;
            b[c] += v * w;
        }
    }
    for (int c = 0; c < count; c++) {
        out0[c] = added(a[c]);
        out1[c] = added(b[c]);
    }
}

/* logits = x weights^T + bias for one tile of samples. */
INLINE void scores(const float *x, int64_t samples, const float *weights, const float *bias,
                   int64_t width, int64_t classes, float *logits) {
    float out0[GROUP], out1[GROUP];
    for (int64_t c = 0; c < classes; c += GROUP) {
        const int count = classes - c < GROUP ? (int)(classes - c) : GROUP;
        const float *w = weights + c * width;
        for (int64_t i = 0; i < samples; i += 2) {
            const float *x0 = x + i * width, *x1 = i + 1 < samples ? x0 + width : x0;
            switch (count) {
            case 5: dots(5, x0, x1, w, width, out0, out1); break;
            case 4: dots(4, x0, x1, w, width, out0, out1); break;
            case 3: dots(3, x0, x1, w, width, out0, out1); break;
            case 2: dots(2, x0, x1, w, width, out0, out1); break;
            default: dots(1, x0, x1, w, width, out0, out1);
            }
            for (int j = 0; j < count; j++) {
                logits[i * classes + c + j] = out0[j] + bias[c + j];
                if (i + 1 < samples) logits[(i + 1) * classes + c + j] = out1[j] + bias[c + j];
            }
        }
    }
}

/* gradient += slope^T x for one tile of samples. */
INLINE void outer(const float *x, int64_t samples, const float *slope, int64_t width,
                  int64_t classes, float *gradient) {
    const float *rows[TILE];
    for (int64_t i = 0; i < TILE; i++) rows[i] = x + (i < samples ? i : 0) * width;
    for (int64_t c = 0; c < classes; c++) {
        float s[TILE];
        for (int64_t i = 0; i < TILE; i++) s[i] = i < samples ? slope[i * classes + c] : 0.0f;
        float *g = gradient + c * width;
        for (int64_t k = 0; k < width; k += WIDE) {
            vec even = load(g + k) + s[0] * load(rows[0] + k);
            vec odd = s[1] * load(rows[1] + k);
            even += s[2] * load(rows[2] + k);
            odd += s[3] * load(rows[3] + k);
            even += s[4] * load(rows[4] + k);
            odd += s[5] * load(rows[5] + k);
            even += s[6] * load(rows[6] + k);
            odd += s[7] * load(rows[7] + k);
            *(vec *)(g + k) = even + odd;
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

/* Lay a model out with whole vectors per class. */
INLINE void unpack(const float *theta, const room *r, int64_t inputs, int64_t classes,
                   float *weights, float *bias) {
    for (int64_t c = 0; c < classes; c++) {
        memcpy(weights + c * r->width, theta + c * inputs, (size_t)inputs * 4);
        memset(weights + c * r->width + inputs, 0, (size_t)(r->width - inputs) * 4);
    }
    memcpy(bias, theta + classes * inputs, (size_t)classes * 4);
}

/* Scores of a whole mini-batch under a frozen model, which borrows the gradient's room. */
INLINE void frozen(const work *w, const room *r, const float *theta, int64_t samples,
                   float *logits) {
    float bias[w->classes];
    unpack(theta, r, w->inputs, w->classes, r->gradient, bias);
    for (int64_t i = 0; i < samples; i += TILE)
        scores(r->x + i * r->width, samples - i < TILE ? samples - i : TILE, r->gradient, bias,
               r->width, w->classes, logits + i * w->classes);
}

/* The derivative of the mini-batch's mean loss in every score. */
INLINE void slopes(const work *w, const room *r, const lane *l, int64_t device,
                   const int64_t *rows, int64_t samples) {
    const int64_t classes = w->classes;
    const float weight = (float)(1.0 / (double)samples);
    float *slope = r->slope, *target = r->target;
    probabilities(r->logits, samples, classes, r->padded, 1.0f, slope);
    for (int64_t i = 0; i < samples; i++) slope[i * classes + w->labels[rows[i]]] -= 1.0f;
    if (l->previous && l->seen[device] != 0.0f) {
        float scratch[2 * classes];
        frozen(w, r, l->theta, samples, r->anchor);
        frozen(w, r, l->previous + device * classes * (w->inputs + 1), samples, target);
        contrast(r->logits, r->anchor, target, samples, classes, l->mu * l->seen[device], l->tau,
                 scratch, slope);
    }
    if (l->teacher) {
        const float scale = l->kl * l->temperature;
        frozen(w, r, l->teacher, samples, r->anchor);
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

INLINE void one_step(const work *w, const room *r, int64_t device, const int64_t *rows,
                     int64_t samples, int first) {
    const int64_t classes = w->classes, inputs = w->inputs, width = r->width;
    const int64_t size = classes * width, parameters = classes * (inputs + 1);
    for (int64_t i = 0; i < samples; i++) {
        memcpy(r->x + i * width, w->x + rows[i] * inputs, (size_t)inputs * 4);
        memset(r->x + i * width + inputs, 0, (size_t)(width - inputs) * 4);
    }
    for (int64_t n = 0; n < w->lane_count; n++) {
        const lane *l = w->lanes + n;
        float *weights = r->weights + n * size, *velocity = r->velocity + n * size;
        float *bias = r->bias + n * 3 * classes, *pace = bias + classes, *slant = pace + classes;
        for (int64_t i = 0; i < samples; i += TILE)
            scores(r->x + i * width, samples - i < TILE ? samples - i : TILE, weights, bias, width,
                   classes, r->logits + i * classes);
        slopes(w, r, l, device, rows, samples);
        memset(r->gradient, 0, (size_t)size * 4);
        memset(slant, 0, (size_t)classes * 4);
        for (int64_t i = 0; i < samples; i += TILE)
            outer(r->x + i * width, samples - i < TILE ? samples - i : TILE,
                  r->slope + i * classes, width, classes, r->gradient);
        for (int64_t i = 0; i < samples; i++)
            for (int64_t c = 0; c < classes; c++) slant[c] += r->slope[i * classes + c];
        if (first) {
            memset(velocity, 0, (size_t)size * 4);
            memset(pace, 0, (size_t)classes * 4);
        }
        const float *shift = l->shift ? l->shift + device * parameters : 0;
        for (int64_t c = 0; c < classes; c++)
            move(weights + c * width, velocity + c * width, r->gradient + c * width,
                 l->theta + c * inputs, shift ? shift + c * inputs : 0, inputs, l->rate, l->pull,
                 w->momentum);
        move(bias, pace, slant, l->theta + classes * inputs, shift ? shift + classes * inputs : 0,
             classes, l->rate, l->pull, w->momentum);
        if (w->radius > 0.0) project(weights, bias, w, width);
    }
}

/* Train every device in every lane. Returns 0, or 1 if there is no memory. */
int ebbflow_softmax(const work *w) {
    room r;
    r.width = (w->inputs + WIDE - 1) / WIDE * WIDE;
    r.padded = (w->largest * w->classes + WIDE - 1) / WIDE * WIDE;
    const int64_t size = w->classes * r.width;
    const int64_t total = w->largest * r.width + (2 * w->lane_count + 1) * size +
                          3 * w->lane_count * w->classes + 4 * r.padded;
    float *memory = malloc((size_t)total * 4);
    if (!memory) return 1;
    r.x = memory;
    r.weights = r.x + w->largest * r.width;
    r.velocity = r.weights + w->lane_count * size;
    r.gradient = r.velocity + w->lane_count * size;
    r.logits = r.gradient + size;
    r.slope = r.logits + r.padded;
    r.anchor = r.slope + r.padded;
    r.target = r.anchor + r.padded;
    r.bias = r.target + r.padded;
    for (int64_t d = 0; d < w->devices; d++) {
        for (int64_t n = 0; n < w->lane_count; n++)
            unpack(w->lanes[n].theta, &r, w->inputs, w->classes, r.weights + n * size,
                   r.bias + n * 3 * w->classes);
        for (int64_t s = w->begins[d]; s < w->begins[d + 1]; s++)
            one_step(w, &r, d, w->rows + w->steps[s], w->steps[s + 1] - w->steps[s],
                     s == w->begins[d]);
        for (int64_t n = 0; n < w->lane_count; n++) {
            float *out = w->lanes[n].out + d * w->classes * (w->inputs + 1);
            for (int64_t c = 0; c < w->classes; c++)
                memcpy(out + c * w->inputs, r.weights + n * size + c * r.width,
                       (size_t)w->inputs * 4);
            memcpy(out + w->classes * w->inputs, r.bias + n * 3 * w->classes,
                   (size_t)w->classes * 4);
        }
    }
    free(memory);
    return 0;
}
