/*
 * Moves money between accounts: accounts STORE FROM TO AMOUNT
 *
 * Shows a transaction that is tried again after a conflict, a merge, a view of one moment, and a backup.
 */
#include <betree.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's words, unless a call was done. */
static void must(betree_status status) {
    if (status != BETREE_OK) {
        fprintf(stderr, "accounts: %s\n", betree_last_error());
        exit(1);
    }
}

static int64_t number_of(const uint8_t *value, size_t len) {
    int64_t number = 0;
    if (len == sizeof number) {
        memcpy(&number, value, sizeof number);
    }
    return number;
}

/* What is in an account, as the transaction sees it. */
static int64_t balance(betree_transaction *own, betree_dict *accounts, const char *name) {
    uint8_t *value;
    size_t len;
    betree_status found =
        betree_transaction_get(own, accounts, (const uint8_t *)name, strlen(name), &value, &len);
    if (found == BETREE_NOT_FOUND) {
        return 0;
    }
    must(found);
    int64_t number = number_of(value, len);
    betree_free(value);
    return number;
}

static void add(betree_transaction *own, betree_dict *accounts, const char *name, int64_t amount) {
    /* The merge adds it: nothing is read. */
    must(betree_transaction_upsert(own, accounts, (const uint8_t *)name, strlen(name),
                                   (const uint8_t *)&amount, sizeof amount));
}

/* Moves an amount, if there is as much. The transaction is repeated until nobody else came first. */
static bool move(betree_store *store, betree_dict *accounts, const char *from, const char *to, int64_t amount) {
    for (;;) {
        betree_transaction *own;
        must(betree_transaction_begin(store, BETREE_SERIALIZABLE, &own));
        bool is_enough = strcmp(from, "bank") == 0 || balance(own, accounts, from) >= amount;
        if (is_enough) {
            add(own, accounts, from, -amount);
            add(own, accounts, to, amount);
        }
        betree_status ended = betree_transaction_commit(own, NULL);
        betree_transaction_free(own);
        if (ended != BETREE_CONFLICT) {
            must(ended);
            return is_enough;
        }
    }
}

/* Prints all accounts as they are at one moment, and their sum, which is always zero. */
static void print(betree_store *store) {
    betree_view *view;
    betree_view_dict *accounts;
    betree_iter *iter;
    const uint8_t *name, *value;
    size_t name_len, value_len;
    betree_status stepped;
    int64_t sum = 0;

    must(betree_view_begin(store, &view));
    must(betree_view_dict_open(view, "accounts", 8, &accounts));
    must(betree_view_prefix(accounts, NULL, 0, &iter));
    while ((stepped = betree_iter_next(iter, &name, &name_len, &value, &value_len)) == BETREE_OK) {
        int64_t number = number_of(value, value_len);
        sum += number;
        printf("%.*s %" PRId64 "\n", (int)name_len, (const char *)name, number);
    }
    if (stepped != BETREE_NOT_FOUND) {
        must(stepped);
    }
    printf("sum %" PRId64 "\n", sum);
    betree_iter_free(iter);
    betree_view_dict_free(accounts);
    betree_view_free(view);
}

static bool report(void *unused, const betree_progress *progress) {
    (void)unused;
    fprintf(stderr, "%s: %" PRIu64 " bytes\n", progress->dict.data, progress->bytes);
    return true;
}

int main(int argc, char **argv) {
    betree_store *store;
    betree_dict *accounts;
    char copy[4096];

    if (argc != 5) {
        fprintf(stderr, "usage: accounts STORE FROM TO AMOUNT\n");
        return 2;
    }
    must(betree_open(argv[1], NULL, &store));
    must(betree_dict_ensure_with(store, "accounts", 8, "betree.add_i64", 14, &accounts));
    bool is_done = move(store, accounts, argv[2], argv[3], strtoll(argv[4], NULL, 10));
    print(store);
    snprintf(copy, sizeof copy, "%s.backup", argv[1]);
    remove(copy);
    must(betree_backup(store, copy, report, NULL));
    betree_dict_free(accounts);
    must(betree_close(store));
    if (!is_done) {
        fprintf(stderr, "accounts: %s has too little\n", argv[2]);
    }
    return is_done ? 0 : 1;
}
