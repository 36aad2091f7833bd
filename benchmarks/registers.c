/* So many multiply-adds of whole vectors whose operands never leave the registers: no program that
 * makes as many can be faster. Twelve sums of their own hide how long each takes. */

#include <stdint.h>

typedef float vec __attribute__((vector_size(BYTES)));

#define EACH(call)                                                                                 \
    call(0) call(1) call(2) call(3) call(4) call(5) call(6) call(7) call(8) call(9) call(10)       \
        call(11)
#define BEGIN(i) vec s##i = a;
#define ADD(i)                                                                                     \
    s##i = s##i * a + b;                                                                           \
    __asm__ volatile("" : "+x"(s##i)); /* not to be left out, nor formed in another way */
#define END(i) total += s##i;

void multiply_adds(int64_t vectors, float *out) {
    vec a, b, total;
    for (int j = 0; j < BYTES / 4; j++) a[j] = b[j] = total[j] = out[j];
    EACH(BEGIN)
    for (int64_t k = 0; k < vectors; k += 12) { EACH(ADD) }
    EACH(END)
    for (int j = 0; j < BYTES / 4; j++) out[j] = total[j];
}
