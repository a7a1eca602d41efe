/*
 * Counts the words of a text in a store, and prints them by number: words STORE TEXT
 *
 * Shows batches, iterators from both ends, clones, and how failures are met.
 */
#include <betree.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's words, unless a call was done. */
static void must(betree_status status) {
    if (status != BETREE_OK) {
        fprintf(stderr, "words: %s\n", betree_last_error());
        exit(1);
    }
}

/* Adds one to the number of a word. */
static void count(betree_dict *words, const char *word, size_t len) {
    const uint8_t *key = (const uint8_t *)word;
    uint64_t number = 0;
    uint8_t *value;
    size_t value_len;
    betree_status found = betree_get(words, key, len, &value, &value_len);
    if (found != BETREE_NOT_FOUND) {
        must(found);
        if (value_len == sizeof number) {
            memcpy(&number, value, sizeof number);
        }
        betree_free(value);
    }
    number++;
    must(betree_put(words, key, len, (const uint8_t *)&number, sizeof number));
}

/* Counts all words of a file. */
static void count_all(betree_dict *words, FILE *text) {
    char word[64];
    size_t len = 0;
    int c;
    do {
        c = fgetc(text);
        if (c != EOF && isalpha(c) && len < sizeof word) {
            word[len++] = (char)tolower(c);
        } else if (len > 0) {
            count(words, word, len);
            len = 0;
        }
    } while (c != EOF);
}

/* Fills a dictionary with the words by number: keys sort as bytes, so the number's highest byte is first. */
static void index_by_number(betree_store *store, betree_dict *words, betree_dict *by_number) {
    betree_batch *batch;
    betree_iter *iter;
    const uint8_t *word, *value;
    size_t word_len, value_len;
    betree_status stepped;

    must(betree_batch_new(store, &batch));
    must(betree_batch_delete_range(batch, by_number, NULL, 0, NULL, 0));
    must(betree_iter_prefix(words, NULL, 0, &iter));
    while ((stepped = betree_iter_next(iter, &word, &word_len, &value, &value_len)) == BETREE_OK) {
        uint8_t key[8 + 64];
        uint64_t number = 0;
        if (value_len == sizeof number && word_len <= 64) {
            memcpy(&number, value, sizeof number);
            for (int i = 0; i < 8; i++) {
                key[i] = (uint8_t)(number >> (56 - 8 * i));
            }
            memcpy(key + 8, word, word_len);
            must(betree_batch_put(batch, by_number, key, 8 + word_len, NULL, 0));
        }
    }
    if (stepped != BETREE_NOT_FOUND) {
        must(stepped);
    }
    betree_iter_free(iter);
    must(betree_batch_commit(batch));
    betree_batch_free(batch);
}

/* Prints the words, the most frequent first. */
static void print(betree_dict *by_number) {
    betree_iter *iter;
    const uint8_t *key, *value;
    size_t key_len, value_len;
    betree_status stepped;

    must(betree_iter_range(by_number, NULL, 0, NULL, 0, &iter));
    while ((stepped = betree_iter_prev(iter, &key, &key_len, &value, &value_len)) == BETREE_OK) {
        uint64_t number = 0;
        for (int i = 0; i < 8; i++) {
            number = number << 8 | key[i];
        }
        printf("%" PRIu64 " %.*s\n", number, (int)(key_len - 8), (const char *)key + 8);
    }
    if (stepped != BETREE_NOT_FOUND) {
        must(stepped);
    }
    betree_iter_free(iter);
}

int main(int argc, char **argv) {
    betree_options options = {0};
    betree_store *store;
    betree_dict *words, *by_number;
    betree_slice *names;
    size_t count;

    if (argc != 3) {
        fprintf(stderr, "usage: words STORE TEXT\n");
        return 2;
    }
    FILE *text = fopen(argv[2], "r");
    if (!text) {
        perror(argv[2]);
        return 1;
    }
    options.cache_bytes = 4 << 20;
    options.durability = BETREE_MANUAL;
    must(betree_open(argv[1], &options, &store));
    must(betree_dict_ensure(store, "words", 5, &words));
    must(betree_dict_ensure(store, "by number", 9, &by_number));

    count_all(words, text);
    fclose(text);
    index_by_number(store, words, by_number);
    print(by_number);

    /* A copy of the words as they are now; it costs the same for a million. */
    betree_status dropped = betree_dict_drop(store, "words before", 12);
    if (dropped != BETREE_NO_SUCH_DICT) {
        must(dropped);
    }
    must(betree_dict_clone(store, "words", 5, "words before", 12, NULL));
    must(betree_dict_list(store, &names, &count));
    for (size_t i = 0; i < count; i++) {
        printf("dictionary %s\n", names[i].data);
    }
    betree_free(names);

    betree_dict_free(by_number);
    betree_dict_free(words);
    must(betree_close(store));
    return 0;
}
