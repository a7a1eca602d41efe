/* What the programs of the tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <betree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes, and names, with their lengths. */
#define B(text) (const uint8_t *)(text), sizeof(text) - 1
#define N(text) (text), sizeof(text) - 1
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,                 \
                    betree_last_error());                                                                    \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
/* The call fails with a status, and the last error has some words. */
#define FAILS(expected, words, call)                                                                         \
    do {                                                                                                     \
        CHECK((call) == (expected));                                                                         \
        CHECK(strstr(betree_last_error(), words) != NULL);                                                   \
    } while (0)

#endif
