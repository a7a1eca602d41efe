/* What betree.h promises, as far as words.c does not show it: contract STORE */
#include "check.h"

static const char *path;
static uint8_t *value;
static size_t len;
static const uint8_t *key, *seen;
static size_t key_len, seen_len;

static void null_is_refused(betree_store *store, betree_dict *dict) {
    betree_store *no_store = (betree_store *)1;
    betree_dict *no_dict;
    betree_batch *batch;
    betree_iter *iter;
    betree_slice *names;
    uint64_t bytes;
    char *text;

    FAILS(BETREE_BAD_ARGUMENT, "the path is NULL", betree_open(NULL, NULL, &no_store));
    CHECK(no_store == NULL);
    FAILS(BETREE_BAD_ARGUMENT, "the place for the store is NULL", betree_open(path, NULL, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the store is NULL", betree_sync(NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the store is NULL", betree_stats(NULL, &text, &len));
    FAILS(BETREE_BAD_ARGUMENT, "the length of", betree_stats(store, &text, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the store is NULL", betree_dict_ensure(NULL, N("d"), &no_dict));
    FAILS(BETREE_BAD_ARGUMENT, "the name is NULL", betree_dict_ensure(store, NULL, 1, &no_dict));
    FAILS(BETREE_BAD_ARGUMENT, "the place for", betree_dict_ensure(store, N("d"), NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the store is NULL", betree_dict_drop(NULL, N("d")));
    FAILS(BETREE_BAD_ARGUMENT, "the name is NULL", betree_dict_rename(store, N("d"), NULL, 1));
    FAILS(BETREE_BAD_ARGUMENT, "the name is NULL", betree_dict_clone(store, NULL, 1, N("e"), NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the place for", betree_dict_list(store, NULL, &len));
    FAILS(BETREE_BAD_ARGUMENT, "the place for", betree_dict_list(store, &names, NULL));
    CHECK(names == NULL);
    FAILS(BETREE_BAD_ARGUMENT, "the dictionary is NULL", betree_get(NULL, B("k"), &value, &len));
    FAILS(BETREE_BAD_ARGUMENT, "the key is NULL", betree_get(dict, NULL, 1, &value, &len));
    FAILS(BETREE_BAD_ARGUMENT, "the place for", betree_get(dict, B("k"), NULL, &len));
    FAILS(BETREE_BAD_ARGUMENT, "the length of", betree_get(dict, B("k"), &value, NULL));
    CHECK(value == NULL);
    FAILS(BETREE_BAD_ARGUMENT, "the value is NULL", betree_put(dict, B("k"), NULL, 1));
    FAILS(BETREE_BAD_ARGUMENT, "the dictionary is NULL", betree_delete(NULL, B("k")));
    FAILS(BETREE_BAD_ARGUMENT, "the key is NULL", betree_delete_range(dict, NULL, 1, NULL, 0));
    FAILS(BETREE_BAD_ARGUMENT, "the key is NULL", betree_delete_prefix(dict, NULL, 1));
    FAILS(BETREE_BAD_ARGUMENT, "the store is NULL", betree_batch_new(NULL, &batch));
    FAILS(BETREE_BAD_ARGUMENT, "the batch is NULL", betree_batch_put(NULL, dict, B("k"), B("v")));
    FAILS(BETREE_BAD_ARGUMENT, "the batch is NULL", betree_batch_commit(NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the dictionary is NULL", betree_iter_prefix(NULL, B("k"), &iter));
    FAILS(BETREE_BAD_ARGUMENT, "the view is NULL", betree_view_end(NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the view", betree_view_begin(store, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the dictionary is NULL", betree_view_get(NULL, B("k"), &value, &len));
    FAILS(BETREE_BAD_ARGUMENT, "the transaction is NULL", betree_transaction_commit(NULL, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the transaction is NULL", betree_transaction_put(NULL, dict, B("k"), B("v")));
    FAILS(BETREE_BAD_ARGUMENT, "the store is NULL", betree_backup(NULL, path, NULL, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the path is NULL", betree_backup(store, NULL, NULL, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the number", betree_check(store, &text, &len, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the written", betree_compact(dict, NULL, 0, NULL, 0, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the dictionary is NULL", betree_compact(NULL, NULL, 0, NULL, 0, &bytes));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the excl", betree_estimate(dict, NULL, 0, NULL, 0, &bytes, NULL, &bytes));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the number of", betree_estimate(dict, NULL, 0, NULL, 0, &bytes, &bytes, NULL));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the result", betree_merged_set(NULL, B("v")));
    FAILS(BETREE_BAD_ARGUMENT, "the iterator is NULL", betree_iter_next(NULL, &key, &key_len, &seen, &seen_len));
    CHECK(betree_iter_prefix(dict, NULL, 0, &iter) == BETREE_OK);
    FAILS(BETREE_BAD_ARGUMENT, "the place for", betree_iter_prev(iter, &key, NULL, &seen, &seen_len));
    betree_iter_free(iter);

    FAILS(BETREE_BAD_ARGUMENT, "the dictionary is NULL", betree_put_until(NULL, B("k"), B("v"), 1));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the time", betree_expires_at(dict, B("k"), NULL));
    FAILS(BETREE_NO_EXPIRY, "not made for values", betree_put_until(dict, B("k"), B("v"), 1));

    betree_free(NULL);
    betree_iter_free(NULL);
    betree_batch_free(NULL);
    betree_transaction_free(NULL);
    betree_view_dict_free(NULL);
    betree_view_free(NULL);
    betree_dict_free(NULL);
    betree_store_free(NULL);
    CHECK(betree_close(NULL) == BETREE_OK);
}

static void values_expire(betree_store *store) {
    betree_dict *dict;
    int64_t expires_ns;

    CHECK(betree_dict_ensure_expiring(store, N("expiring"), NULL, 0, &dict) == BETREE_OK);
    CHECK(betree_put_until(dict, B("past"), B("v"), 1) == BETREE_OK);
    CHECK(betree_get(dict, B("past"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_expires_at(dict, B("past"), &expires_ns) == BETREE_NOT_FOUND);
    CHECK(betree_put_until(dict, B("far"), B("v"), INT64_MAX - 1) == BETREE_OK);
    CHECK(betree_expires_at(dict, B("far"), &expires_ns) == BETREE_OK && expires_ns == INT64_MAX - 1);
    CHECK(betree_put(dict, B("far"), B("v")) == BETREE_OK);
    CHECK(betree_expires_at(dict, B("far"), &expires_ns) == BETREE_NOT_FOUND && expires_ns == 0);
    betree_dict_free(dict);
    CHECK(betree_dict_drop(store, N("expiring")) == BETREE_OK);
}

static void bad_lengths_and_values_are_refused(betree_store *store, betree_dict *dict) {
    betree_dict *no_dict = NULL;
    betree_options options = {0};
    betree_store *no_store;

    /* There are no such numbers of bytes: they must not be looked at. */
    FAILS(BETREE_TOO_LARGE, "over the limit", betree_get(dict, (const uint8_t *)"k", SIZE_MAX, &value, &len));
    FAILS(BETREE_TOO_LARGE, "over the limit", betree_put(dict, (const uint8_t *)"k", 1 << 20, B("v")));
    FAILS(BETREE_TOO_LARGE, "over the limit", betree_put(dict, B("k"), (const uint8_t *)"v", SIZE_MAX / 2));
    FAILS(BETREE_TOO_LARGE, "over the limit", betree_delete_range(dict, B("k"), (const uint8_t *)"k", SIZE_MAX));
    FAILS(BETREE_BAD_NAME, "over the limit", betree_dict_ensure(store, "d", SIZE_MAX, &no_dict));
    FAILS(BETREE_BAD_NAME, "between 1 and 255", betree_dict_ensure(store, "", 0, &no_dict));
    FAILS(BETREE_BAD_ARGUMENT, "UTF-8", betree_dict_ensure(store, N("\xff"), &no_dict));
    CHECK(no_dict == NULL);
    options.durability = 77;
    FAILS(BETREE_BAD_ARGUMENT, "durability 77", betree_open(path, &options, &no_store));
    options.durability = 0;
    options.compression = -1;
    FAILS(BETREE_BAD_ARGUMENT, "compression -1", betree_open(path, &options, &no_store));
    options.compression = 0;
    options.merge_count = 1;
    FAILS(BETREE_BAD_ARGUMENT, "the merges are NULL", betree_open(path, &options, &no_store));
    options.merges = &(betree_merge){.name = "m", .name_len = 1};
    FAILS(BETREE_BAD_ARGUMENT, "function of the merge \"m\" is NULL", betree_open(path, &options, &no_store));
    options.merges = &(betree_merge){.name = "m", .name_len = 1, .kind = 77};
    FAILS(BETREE_BAD_ARGUMENT, "kind 77", betree_open(path, &options, &no_store));
    options.merges = &(betree_merge){.name = "betree.max", .name_len = 10, .kind = BETREE_MERGE_MAX};
    FAILS(BETREE_MERGE, "the store's own", betree_open(path, &options, &no_store));
    options.merge_count = SIZE_MAX;
    FAILS(BETREE_TOO_LARGE, "too many", betree_open(path, &options, &no_store));
}

static void failures_have_their_status(betree_store *store, betree_dict *dict) {
    betree_store *second;
    betree_dict *other;
    betree_batch *batch;
    betree_iter *iter;
    betree_options options = {0};
    char name[4096];

    FAILS(BETREE_IN_USE, "open already", betree_open(path, NULL, &second));
    snprintf(name, sizeof name, "%s.none", path);
    options.must_exist = true;
    FAILS(BETREE_NO_SUCH_STORE, "no store", betree_open(name, &options, &second));
    FAILS(BETREE_IO, "/none", betree_open("/nowhere/none", NULL, &second));
    FAILS(BETREE_NO_SUCH_DICT, "nobody", betree_dict_open(store, N("nobody"), &other));
    FAILS(BETREE_DICT_EXISTS, "\"d\"", betree_dict_create(store, N("d"), NULL, 0, &other));
    FAILS(BETREE_NO_SUCH_DICT, "nobody", betree_dict_clone(store, N("nobody"), N("e"), &other));
    CHECK(other == NULL);

    /* A store with a dictionary of its own. */
    snprintf(name, sizeof name, "%s.second", path);
    CHECK(betree_open(name, NULL, &second) == BETREE_OK);
    CHECK(betree_batch_new(second, &batch) == BETREE_OK);
    FAILS(BETREE_OTHER_STORE, "another store", betree_batch_put(batch, dict, B("k"), B("v")));
    CHECK(betree_dict_create(second, N("d"), NULL, 0, &other) == BETREE_OK);
    CHECK(betree_iter_prefix(other, B(""), &iter) == BETREE_OK);
    CHECK(betree_dict_drop(second, N("d")) == BETREE_OK);
    FAILS(BETREE_DICT_DROPPED, "dropped", betree_get(other, B("k"), &value, &len));
    FAILS(BETREE_DICT_DROPPED, "dropped", betree_iter_next(iter, &key, &key_len, &seen, &seen_len));
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_NOT_FOUND);
    CHECK(betree_close(second) == BETREE_OK);
    FAILS(BETREE_CLOSED, "closed", betree_batch_commit(batch));
    betree_iter_free(iter);
    betree_batch_free(batch);
    betree_dict_free(other);
}

static void pairs_are_what_was_put(betree_store *store, betree_dict *dict) {
    betree_batch *batch;
    betree_iter *iter;
    betree_dict *clone;

    /* Lengths count, not zeros; and nothing is as good as any. */
    CHECK(betree_put(dict, B("a\0b"), B("1\0\0")) == BETREE_OK);
    CHECK(betree_put(dict, NULL, 0, NULL, 0) == BETREE_OK);
    CHECK(betree_get(dict, B("a\0b"), &value, &len) == BETREE_OK);
    CHECK(len == 3 && memcmp(value, "1\0\0", 4) == 0);
    betree_free(value);
    CHECK(betree_get(dict, B(""), &value, &len) == BETREE_OK && len == 0 && value != NULL);
    betree_free(value);
    CHECK(betree_get(dict, B("a"), &value, &len) == BETREE_NOT_FOUND && len == 0 && value == NULL);
    CHECK(betree_delete(dict, B("")) == BETREE_OK && betree_delete(dict, B("never there")) == BETREE_OK);

    CHECK(betree_batch_new(store, &batch) == BETREE_OK);
    CHECK(betree_batch_delete(batch, dict, B("a\0b")) == BETREE_OK);
    CHECK(betree_batch_put(batch, dict, B("b"), B("2")) == BETREE_OK);
    CHECK(betree_get(dict, B("b"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_batch_commit(batch) == BETREE_OK);
    CHECK(betree_batch_clear(batch) == BETREE_OK);
    CHECK(betree_batch_put(batch, dict, B("c"), B("3")) == BETREE_OK);
    CHECK(betree_batch_put(batch, dict, B("d"), B("4")) == BETREE_OK);
    CHECK(betree_batch_commit(batch) == BETREE_OK);
    betree_batch_free(batch);

    CHECK(betree_dict_clone(store, N("d"), N("e"), &clone) == BETREE_OK);
    CHECK(betree_dict_rename(store, N("e"), N("f")) == BETREE_OK);
    CHECK(betree_delete_range(clone, B("c"), B("d")) == BETREE_OK);
    CHECK(betree_delete_prefix(clone, B("b")) == BETREE_OK);
    CHECK(betree_iter_range(clone, NULL, 0, NULL, 0, &iter) == BETREE_OK);
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_OK);
    CHECK(key_len == 1 && *key == 'd' && seen_len == 1 && *seen == '4');
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_NOT_FOUND && key == NULL);
    betree_iter_free(iter);
    betree_dict_free(clone);

    CHECK(betree_iter_range(dict, B("b"), B("d"), &iter) == BETREE_OK);
    CHECK(betree_iter_prev(iter, &key, &key_len, &seen, &seen_len) == BETREE_OK && *key == 'c');
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_OK && *key == 'b');
    CHECK(betree_iter_prev(iter, &key, &key_len, &seen, &seen_len) == BETREE_NOT_FOUND);
    betree_iter_free(iter);
}

static void several_keys_are_read_and_first_pairs_taken(betree_store *store) {
    /* With a zero in one, an absent one, an empty one, and one twice. */
    const betree_slice keys[] = {{"c", 1}, {"absent", 6}, {"a\0b", 3}, {NULL, 0}, {"c", 1}};
    const betree_slice too_long[] = {{"c", 1}, {"k", 1 << 20}}, no_key[] = {{NULL, 1}};
    betree_dict *jobs;
    betree_slice *values;
    uint8_t *first;
    size_t first_len;

    CHECK(betree_dict_create(store, N("jobs"), NULL, 0, &jobs) == BETREE_OK);
    CHECK(betree_put(jobs, B("c"), B("3")) == BETREE_OK && betree_put(jobs, B("a\0b"), B("1\0")) == BETREE_OK);
    CHECK(betree_put(jobs, B(""), B("")) == BETREE_OK);
    CHECK(betree_get_many(jobs, keys, 5, &values) == BETREE_OK);
    CHECK(values[0].len == 1 && strcmp(values[0].data, "3") == 0);
    CHECK(values[1].len == 0 && values[1].data == NULL);
    CHECK(values[2].len == 2 && memcmp(values[2].data, "1\0", 3) == 0);
    CHECK(values[3].len == 0 && values[3].data != NULL);
    CHECK(values[4].len == 1 && values[4].data != values[0].data && strcmp(values[4].data, "3") == 0);
    betree_free(values);
    CHECK(betree_get_many(jobs, NULL, 0, &values) == BETREE_OK && values != NULL);
    betree_free(values);
    FAILS(BETREE_BAD_ARGUMENT, "the list of keys is NULL", betree_get_many(jobs, NULL, 1, &values));
    CHECK(values == NULL);
    FAILS(BETREE_BAD_ARGUMENT, "the key is NULL", betree_get_many(jobs, no_key, 1, &values));
    FAILS(BETREE_BAD_ARGUMENT, "the place for the values", betree_get_many(jobs, keys, 1, NULL));
    FAILS(BETREE_TOO_LARGE, "over the limit", betree_get_many(jobs, too_long, 2, &values));
    FAILS(BETREE_TOO_LARGE, "does not fit", betree_get_many(jobs, keys, SIZE_MAX, &values));

    FAILS(BETREE_BAD_ARGUMENT, "the place for the value", betree_pop_first(jobs, &first, &first_len, NULL, &len));
    CHECK(first == NULL && first_len == 0);
    CHECK(betree_pop_first(jobs, &first, &first_len, &value, &len) == BETREE_OK);
    CHECK(first_len == 0 && first != NULL && len == 0 && value != NULL);
    betree_free(first);
    betree_free(value);
    CHECK(betree_pop_first(jobs, &first, &first_len, &value, &len) == BETREE_OK);
    CHECK(first_len == 3 && memcmp(first, "a\0b", 4) == 0 && len == 2 && memcmp(value, "1\0", 3) == 0);
    betree_free(first);
    betree_free(value);
    CHECK(betree_get(jobs, B("a\0b"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_pop_first(jobs, &first, &first_len, &value, &len) == BETREE_OK && *first == 'c' && *value == '3');
    betree_free(first);
    betree_free(value);
    CHECK(betree_pop_first(jobs, &first, &first_len, &value, &len) == BETREE_NOT_FOUND);
    CHECK(first == NULL && value == NULL);
    betree_dict_free(jobs);
    CHECK(betree_dict_drop(store, N("jobs")) == BETREE_OK);
}

int main(int argc, char **argv) {
    betree_store *store;
    betree_dict *dict;
    betree_options options = {0};
    char *text;

    CHECK(argc == 2);
    path = argv[1];
    CHECK(*betree_last_error() == 0);
    options.cache_bytes = 1 << 20;
    options.compression = BETREE_ZSTD;
    options.durability = BETREE_PER_COMMIT;
    CHECK(betree_open(path, &options, &store) == BETREE_OK);
    CHECK(betree_dict_ensure(store, N("d"), &dict) == BETREE_OK);
    null_is_refused(store, dict);
    values_expire(store);
    bad_lengths_and_values_are_refused(store, dict);
    failures_have_their_status(store, dict);
    pairs_are_what_was_put(store, dict);
    several_keys_are_read_and_first_pairs_taken(store);
    CHECK(betree_stats(store, &text, &len) == BETREE_OK);
    CHECK(strlen(text) == len && strstr(text, "dicts 2\n") && strstr(text, "\ndevice_reads "));
    betree_free(text);
    CHECK(betree_sync(store) == BETREE_OK);
    CHECK(betree_close(store) == BETREE_OK);
    FAILS(BETREE_CLOSED, "closed", betree_get(dict, B("b"), &value, &len));
    betree_dict_free(dict);

    /* What was put is there, and is not to be changed. */
    options.read_only = true;
    CHECK(betree_open(path, &options, &store) == BETREE_OK);
    CHECK(betree_dict_open(store, N("d"), &dict) == BETREE_OK);
    betree_store_free(store);
    CHECK(betree_get(dict, B("b"), &value, &len) == BETREE_OK && len == 1 && *value == '2');
    betree_free(value);
    FAILS(BETREE_READ_ONLY, "read-only", betree_put(dict, B("b"), B("3")));
    betree_dict_free(dict);
    return 0;
}
