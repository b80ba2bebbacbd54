/* Compress and decompress two megabytes of generated text with lz4 and print the CPU seconds, for compiler_flags.py. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lz4.h"

enum { WORDS = 4096, LETTERS = 12, SIZE = 2 << 20, ROUNDS = 3 };

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)random_state * n) >> 32);
}

/* Words of random letters; a word is drawn more often the smaller its number is. */
static void write_text(char *text) {
    static char words[WORDS][LETTERS + 1];
    for (int i = 0; i < WORDS; i++) {
        int length = 2 + random_below(LETTERS - 2);
        for (int j = 0; j < length; j++) words[i][j] = (char)('a' + random_below(26));
        words[i][length] = ' ';
        words[i][length + 1] = 0;
    }
    for (size_t at = 0; at < SIZE;) {
        const char *word = words[random_below(1 + random_below(WORDS))];
        for (; *word && at < SIZE; word++) text[at++] = *word;
    }
}

int main(void) {
    int bound = LZ4_compressBound(SIZE);
    char *text = malloc(SIZE), *compressed = malloc(bound), *restored = malloc(SIZE);
    if (!text || !compressed || !restored) return 1;
    write_text(text);
    clock_t start = 0;
    for (int i = 0; i <= ROUNDS; i++) { /* the first round is not measured */
        if (i == 1) start = clock();
        int length = LZ4_compress_default(text, compressed, SIZE, bound);
        if (LZ4_decompress_safe(compressed, restored, length, SIZE) != SIZE) return 1;
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (memcmp(text, restored, SIZE)) return 1;
    printf("%.6f\n", seconds);
    return 0;
}
