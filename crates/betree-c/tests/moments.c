/* Views, transactions, merges and backups, as betree.h promises them: moments STORE */
#include "check.h"
#include <pthread.h>

static const char *path;
static uint8_t *value;
static size_t len;
static const uint8_t *key, *seen;
static size_t key_len, seen_len;

/* A value is these bytes. */
#define IS(expected, call)                                                                                   \
    do {                                                                                                     \
        CHECK((call) == BETREE_OK);                                                                          \
        CHECK(len == sizeof(expected) - 1 && memcmp(value, expected, len) == 0);                             \
        betree_free(value);                                                                                  \
    } while (0)

static void a_view_shows_its_moment(betree_store *store) {
    betree_dict *dict;
    betree_view *view;
    betree_view_dict *then, *none = (betree_view_dict *)1;
    betree_iter *iter;
    betree_slice *names;
    size_t count;
    uint64_t before, after;

    CHECK(betree_dict_ensure(store, N("viewed"), &dict) == BETREE_OK);
    CHECK(betree_put(dict, B("a"), B("old")) == BETREE_OK);
    CHECK(betree_view_begin(store, &view) == BETREE_OK);
    CHECK(betree_view_last_change(view, &before) == BETREE_OK);
    CHECK(betree_put(dict, B("a"), B("new")) == BETREE_OK && betree_put(dict, B("b"), B("2")) == BETREE_OK);
    CHECK(betree_dict_drop(store, N("viewed")) == BETREE_OK);
    betree_dict_free(dict);

    CHECK(betree_view_dict_list(view, &names, &count) == BETREE_OK && count == 1);
    CHECK(strcmp(names[0].data, "viewed") == 0);
    betree_free(names);
    FAILS(BETREE_NO_SUCH_DICT, "nobody", betree_view_dict_open(view, N("nobody"), &none));
    CHECK(none == NULL);
    CHECK(betree_view_dict_open(view, N("viewed"), &then) == BETREE_OK);
    IS("old", betree_view_get(then, B("a"), &value, &len));
    CHECK(betree_view_get(then, B("b"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_view_range(then, NULL, 0, NULL, 0, &iter) == BETREE_OK);
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_OK && *key == 'a');
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_NOT_FOUND);
    betree_iter_free(iter);
    CHECK(betree_view_prefix(then, B("a"), &iter) == BETREE_OK);

    /* It ends for its dictionaries and iterators too. */
    CHECK(betree_view_end(view) == BETREE_OK && betree_view_end(view) == BETREE_OK);
    FAILS(BETREE_VIEW_ENDED, "has ended", betree_view_get(then, B("a"), &value, &len));
    FAILS(BETREE_VIEW_ENDED, "has ended", betree_iter_next(iter, &key, &key_len, &seen, &seen_len));
    FAILS(BETREE_VIEW_ENDED, "has ended", betree_view_dict_list(view, &names, &count));
    CHECK(names == NULL && count == 0);
    betree_view_free(view);
    betree_iter_free(iter);
    betree_view_dict_free(then);
    CHECK(betree_view_begin(store, &view) == BETREE_OK);
    CHECK(betree_view_last_change(view, &after) == BETREE_OK && after > before);
    betree_view_free(view);
}

static void transactions_commit_whole_or_conflict(betree_store *store) {
    betree_dict *dict, *made, *clone;
    betree_transaction *own, *other;
    betree_iter *iter;
    betree_conflict *conflict;
    betree_slice *names;
    size_t count;
    uint64_t savepoint, later;

    CHECK(betree_dict_ensure(store, N("t"), &dict) == BETREE_OK);
    CHECK(betree_put(dict, B("a"), B("1")) == BETREE_OK && betree_put(dict, B("b"), B("2")) == BETREE_OK);
    CHECK(betree_transaction_begin(store, BETREE_SERIALIZABLE, &own) == BETREE_OK);
    CHECK(betree_transaction_put(own, dict, B("c"), B("3")) == BETREE_OK);
    CHECK(betree_transaction_savepoint(own, &savepoint) == BETREE_OK);
    CHECK(betree_transaction_delete(own, dict, B("a")) == BETREE_OK);
    CHECK(betree_transaction_savepoint(own, &later) == BETREE_OK);
    CHECK(betree_transaction_delete_prefix(own, dict, B("")) == BETREE_OK);
    CHECK(betree_transaction_get(own, dict, B("b"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_transaction_roll_back(own, savepoint) == BETREE_OK);
    FAILS(BETREE_BAD_ARGUMENT, "no savepoint", betree_transaction_roll_back(own, later));
    CHECK(betree_transaction_delete_range(own, dict, B("b"), B("c")) == BETREE_OK);
    IS("1", betree_transaction_get(own, dict, B("a"), &value, &len));
    CHECK(betree_transaction_range(own, dict, NULL, 0, NULL, 0, &iter) == BETREE_OK);
    CHECK(betree_iter_next(iter, &key, &key_len, &seen, &seen_len) == BETREE_OK && *key == 'a');
    CHECK(betree_iter_prev(iter, &key, &key_len, &seen, &seen_len) == BETREE_OK && *key == 'c');
    CHECK(betree_iter_prev(iter, &key, &key_len, &seen, &seen_len) == BETREE_NOT_FOUND);
    betree_iter_free(iter);
    CHECK(betree_transaction_prefix(own, dict, B("a"), &iter) == BETREE_OK);

    /* Names are a part of it. */
    CHECK(betree_transaction_dict_create(own, N("made"), N("betree.append"), &made) == BETREE_OK);
    CHECK(betree_transaction_upsert(own, made, B("k"), B("x")) == BETREE_OK);
    CHECK(betree_transaction_upsert_blind(own, made, B("k"), B("y")) == BETREE_OK);
    CHECK(betree_transaction_dict_rename(own, N("made"), N("named")) == BETREE_OK);
    CHECK(betree_transaction_dict_list(own, &names, &count) == BETREE_OK && count == 2);
    CHECK(strcmp(names[0].data, "named") == 0 && strcmp(names[1].data, "t") == 0);
    betree_free(names);
    FAILS(BETREE_NO_SUCH_DICT, "made", betree_get(made, B("k"), &value, &len));
    CHECK(betree_get(dict, B("c"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_transaction_commit(own, NULL) == BETREE_OK);
    IS("xy", betree_get(made, B("k"), &value, &len));
    IS("3", betree_get(dict, B("c"), &value, &len));
    CHECK(betree_get(dict, B("b"), &value, &len) == BETREE_NOT_FOUND);
    FAILS(BETREE_TRANSACTION_ENDED, "ended", betree_transaction_put(own, dict, B("c"), B("4")));
    FAILS(BETREE_TRANSACTION_ENDED, "ended", betree_iter_next(iter, &key, &key_len, &seen, &seen_len));
    FAILS(BETREE_TRANSACTION_ENDED, "ended", betree_transaction_commit(own, &conflict));
    CHECK(conflict == NULL);
    betree_iter_free(iter);
    betree_transaction_free(own);

    /* Clones are a part of it too. */
    CHECK(betree_transaction_begin(store, BETREE_SERIALIZABLE, &own) == BETREE_OK);
    CHECK(betree_transaction_dict_clone(own, N("t"), N("clone"), &clone) == BETREE_OK);
    CHECK(betree_transaction_clone_prefix(own, clone, B("a"), B("x")) == BETREE_OK);
    CHECK(betree_transaction_rename_prefix(own, clone, B("c"), B("y")) == BETREE_OK);
    IS("3", betree_transaction_get(own, clone, B("y"), &value, &len));
    CHECK(betree_transaction_dict_drop(own, N("clone")) == BETREE_OK);
    CHECK(betree_transaction_dict_clone(own, N("t"), N("again"), NULL) == BETREE_OK);
    CHECK(betree_transaction_dict_drop(own, N("again")) == BETREE_OK);
    CHECK(betree_transaction_commit(own, NULL) == BETREE_OK);
    betree_transaction_free(own);
    FAILS(BETREE_DICT_DROPPED, "dropped", betree_get(clone, B("a"), &value, &len));
    betree_dict_free(clone);

    /* Two that change one key. */
    CHECK(betree_transaction_begin(store, BETREE_SNAPSHOT, &own) == BETREE_OK);
    CHECK(betree_transaction_begin(store, BETREE_SNAPSHOT, &other) == BETREE_OK);
    CHECK(betree_transaction_put(own, dict, B("k\0k"), B("own")) == BETREE_OK);
    CHECK(betree_transaction_put(other, dict, B("k\0k"), B("other")) == BETREE_OK);
    CHECK(betree_transaction_commit(own, &conflict) == BETREE_OK && conflict == NULL);
    FAILS(BETREE_CONFLICT, "k\\x00k", betree_transaction_commit(other, &conflict));
    CHECK(conflict->dict.len == 1 && strcmp(conflict->dict.data, "t") == 0 && conflict->by > 0);
    CHECK(conflict->key.len == 3 && memcmp(conflict->key.data, "k\0k", 4) == 0);
    betree_free(conflict);
    betree_transaction_free(own);
    betree_transaction_free(other);
    IS("own", betree_get(dict, B("k\0k"), &value, &len));

    /* A dictionary that was dropped meanwhile. */
    CHECK(betree_transaction_begin(store, BETREE_SNAPSHOT, &own) == BETREE_OK);
    CHECK(betree_transaction_put(own, made, B("k"), B("")) == BETREE_OK);
    CHECK(betree_dict_drop(store, N("named")) == BETREE_OK);
    FAILS(BETREE_CONFLICT, "named", betree_transaction_commit(own, &conflict));
    CHECK(conflict->key.data == NULL && strcmp(conflict->dict.data, "named") == 0);
    betree_free(conflict);
    betree_transaction_free(own);

    /* One that is freed changes nothing. */
    CHECK(betree_transaction_begin(store, BETREE_SNAPSHOT, &own) == BETREE_OK);
    CHECK(betree_transaction_dict_drop(own, N("t")) == BETREE_OK);
    betree_transaction_free(own);
    IS("1", betree_get(dict, B("a"), &value, &len));
    FAILS(BETREE_BAD_ARGUMENT, "isolation 7", betree_transaction_begin(store, 7, &own));
    CHECK(own == NULL);
    betree_dict_free(made);
    betree_dict_free(dict);
}

static bool is_at_least(void *least, const uint8_t *value, size_t len) {
    return value != NULL && len == 1 && *value >= *(const char *)least;
}

static void expectations_stand_for_reads(betree_store *store) {
    betree_dict *stock;
    betree_transaction *own;
    char least = '3';
    bool holds;
    const char *others[] = {"5", "2"};

    CHECK(betree_dict_ensure(store, N("stock"), &stock) == BETREE_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(betree_put(stock, B("apples"), B("9")) == BETREE_OK);
        CHECK(betree_transaction_begin(store, BETREE_SERIALIZABLE, &own) == BETREE_OK);
        CHECK(betree_transaction_expect(own, stock, B("apples"), is_at_least, &least, &holds) == BETREE_OK && holds);
        CHECK(betree_transaction_expect(own, stock, B("pears"), is_at_least, &least, &holds) == BETREE_OK && !holds);
        CHECK(betree_transaction_put(own, stock, B("order"), B("")) == BETREE_OK);
        CHECK(betree_put(stock, B("apples"), (const uint8_t *)others[i], 1) == BETREE_OK);
        CHECK(betree_transaction_commit(own, NULL) == (i == 0 ? BETREE_OK : BETREE_CONFLICT));
        betree_transaction_free(own);
    }
    CHECK(betree_transaction_begin(store, BETREE_SNAPSHOT, &own) == BETREE_OK);
    FAILS(BETREE_BAD_ARGUMENT, "predicate", betree_transaction_expect(own, stock, B("k"), NULL, NULL, &holds));
    betree_transaction_free(own);
    betree_dict_free(stock);
}

/* Adds one to a counter, again until no other thread came first: what `run` does in other languages. */
static void *count(void *store) {
    betree_dict *counters;
    CHECK(betree_dict_open(store, N("counters"), &counters) == BETREE_OK);
    for (int done = 0; done < 100;) {
        betree_transaction *own;
        uint8_t *old, number = 0;
        size_t old_len;
        CHECK(betree_transaction_begin(store, BETREE_SERIALIZABLE, &own) == BETREE_OK);
        betree_status found = betree_transaction_get(own, counters, B("k"), &old, &old_len);
        CHECK(found == BETREE_OK || found == BETREE_NOT_FOUND);
        if (found == BETREE_OK) {
            number = *old;
            betree_free(old);
        }
        number++;
        CHECK(betree_transaction_put(own, counters, B("k"), &number, 1) == BETREE_OK);
        betree_status ended = betree_transaction_commit(own, NULL);
        CHECK(ended == BETREE_OK || ended == BETREE_CONFLICT);
        done += ended == BETREE_OK;
        betree_transaction_free(own);
    }
    betree_dict_free(counters);
    return NULL;
}

static void counters_of_two_threads_are_exact(betree_store *store) {
    betree_dict *counters;
    pthread_t threads[2];
    CHECK(betree_dict_ensure(store, N("counters"), &counters) == BETREE_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, count, store) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    IS("\xc8", betree_get(counters, B("k"), &value, &len));
    betree_dict_free(counters);
}

/* The longer one wins; "bad" cannot be merged, and "gone" removes. */
static bool longer(void *context, const uint8_t *old, size_t old_len, const uint8_t *delta, size_t delta_len,
                   betree_merged *merged) {
    CHECK(strcmp(context, "of merges") == 0);
    if (delta_len == 3 && memcmp(delta, "bad", 3) == 0) {
        return false;
    }
    if (delta_len == 4 && memcmp(delta, "gone", 4) == 0) {
        return true;
    }
    if (old != NULL && old_len >= delta_len) {
        return betree_merged_set(merged, old, old_len) == BETREE_OK;
    }
    return betree_merged_set(merged, delta, delta_len) == BETREE_OK;
}

static void merges_change_values_without_reading(betree_store *store) {
    betree_dict *longest, *hits, *plain;
    betree_batch *batch;
    const uint8_t two[8] = {2};

    CHECK(betree_dict_create(store, N("longest"), N("longer"), &longest) == BETREE_OK);
    CHECK(betree_dict_ensure_with(store, N("hits"), N("hits"), &hits) == BETREE_OK);
    betree_dict_free(hits);
    CHECK(betree_dict_ensure_with(store, N("hits"), N("hits"), &hits) == BETREE_OK);
    FAILS(BETREE_MERGE, "bound to", betree_dict_ensure_with(store, N("hits"), N("longer"), &plain));
    FAILS(BETREE_MERGE, "not registered", betree_dict_create(store, N("x"), N("nobody's"), &plain));
    CHECK(betree_dict_create(store, N("plain"), NULL, 0, &plain) == BETREE_OK);
    FAILS(BETREE_MERGE, "without a merge", betree_upsert(plain, B("k"), B("v")));

    CHECK(betree_upsert(hits, B("/"), two, 8) == BETREE_OK);
    CHECK(betree_batch_new(store, &batch) == BETREE_OK);
    CHECK(betree_batch_upsert(batch, hits, B("/"), two, 8) == BETREE_OK);
    CHECK(betree_batch_commit(batch) == BETREE_OK);
    betree_batch_free(batch);
    IS("\4\0\0\0\0\0\0\0", betree_get(hits, B("/"), &value, &len));

    CHECK(betree_upsert(longest, B("k"), B("one")) == BETREE_OK);
    CHECK(betree_upsert(longest, B("k"), B("another")) == BETREE_OK);
    CHECK(betree_upsert(longest, B("k"), B("")) == BETREE_OK);
    IS("another", betree_get(longest, B("k"), &value, &len));
    CHECK(betree_upsert(longest, B("k"), B("gone")) == BETREE_OK);
    CHECK(betree_get(longest, B("k"), &value, &len) == BETREE_NOT_FOUND);
    CHECK(betree_upsert(longest, B("l"), B("")) == BETREE_OK);
    IS("", betree_get(longest, B("l"), &value, &len));
    CHECK(betree_upsert(longest, B("l"), B("bad")) == BETREE_OK);
    FAILS(BETREE_MERGE, "has returned false", betree_get(longest, B("l"), &value, &len));
    CHECK(betree_put(longest, B("l"), B("whole again")) == BETREE_OK);
    IS("whole again", betree_get(longest, B("l"), &value, &len));
    /* The flushes of the library call it too. */
    for (int i = 0; i < 2000; i++) {
        uint8_t name[2] = {(uint8_t)(i % 50), 'k'};
        static uint8_t long_one[1000];
        CHECK(betree_upsert(longest, name, 2, long_one, (size_t)i / 2) == BETREE_OK);
    }
    CHECK(betree_get(longest, (const uint8_t *)"\0k", 2, &value, &len) == BETREE_OK && len == 975);
    betree_free(value);
    betree_dict_free(longest);
    betree_dict_free(hits);
    betree_dict_free(plain);
}

static int reports;

static bool report(void *stop, const betree_progress *progress) {
    CHECK(progress->dict.data[progress->dict.len] == 0 && progress->bytes > 0 && progress->pairs > 0);
    reports++;
    return stop == NULL;
}

static void backups_are_stores(betree_store *store, const betree_options *options) {
    betree_store *copy;
    betree_dict *dict, *clone;
    char name[4096], stop;
    static uint8_t large[1000];
    uint64_t stored, exclusive, pairs;
    size_t count;
    char *text;

    CHECK(betree_dict_ensure(store, N("much"), &dict) == BETREE_OK);
    for (uint32_t i = 0; i < 3000; i++) {
        memcpy(large, &i, sizeof i);
        CHECK(betree_put(dict, (const uint8_t *)&i, sizeof i, large, sizeof large) == BETREE_OK);
    }
    snprintf(name, sizeof name, "%s.stopped", path);
    FAILS(BETREE_STOPPED, "stopped", betree_backup(store, name, report, &stop));
    CHECK(reports == 1);
    FAILS(BETREE_NO_SUCH_STORE, "no store", betree_open(name, &(betree_options){.must_exist = true}, &copy));
    FAILS(BETREE_FILE_EXISTS, "already", betree_backup(store, path, NULL, NULL));
    snprintf(name, sizeof name, "%s.copy", path);
    CHECK(betree_backup(store, name, report, NULL) == BETREE_OK && reports > 2);
    CHECK(betree_open(name, options, &copy) == BETREE_OK);
    betree_dict_free(dict);
    CHECK(betree_dict_open(copy, N("much"), &dict) == BETREE_OK);
    CHECK(betree_get(dict, (const uint8_t *)&(uint32_t){7}, 4, &value, &len) == BETREE_OK && len == 1000);
    betree_free(value);

    CHECK(betree_check(copy, &text, &len, &count) == BETREE_OK && count == 0 && len == 0);
    betree_free(text);
    CHECK(betree_estimate(dict, NULL, 0, NULL, 0, &stored, &exclusive, &pairs) == BETREE_OK);
    CHECK(stored > 0 && exclusive <= stored && pairs > 2000 && pairs < 4500);
    CHECK(betree_compact(dict, NULL, 0, NULL, 0, &stored) == BETREE_OK && stored > 0);
    CHECK(betree_get(dict, (const uint8_t *)&(uint32_t){7}, 4, &value, &len) == BETREE_OK && len == 1000);
    betree_free(value);
    CHECK(betree_dict_clone(copy, N("much"), N("clone"), &clone) == BETREE_OK);
    CHECK(betree_clone_prefix(clone, (const uint8_t *)"\7\0", 2, B("x")) == BETREE_OK);
    CHECK(betree_rename_prefix(clone, B("x"), B("y")) == BETREE_OK);
    CHECK(betree_get(clone, B("y\0\0"), &value, &len) == BETREE_OK);
    betree_free(value);
    CHECK(betree_get(clone, B("x\0\0"), &value, &len) == BETREE_NOT_FOUND);
    betree_dict_free(clone);
    betree_dict_free(dict);
    CHECK(betree_close(copy) == BETREE_OK);
}

int main(int argc, char **argv) {
    betree_store *store;
    betree_options options = {0};
    betree_merge merges[] = {
        {.name = "longer", .name_len = 6, .merge = longer, .context = "of merges"},
        {.name = "hits", .name_len = 4, .kind = BETREE_MERGE_ADD_U64},
    };

    CHECK(argc == 2);
    path = argv[1];
    options.cache_bytes = 1 << 20;
    options.merges = merges;
    options.merge_count = 2;
    CHECK(betree_open(path, &options, &store) == BETREE_OK);
    a_view_shows_its_moment(store);
    transactions_commit_whole_or_conflict(store);
    expectations_stand_for_reads(store);
    counters_of_two_threads_are_exact(store);
    merges_change_values_without_reading(store);
    backups_are_stores(store, &options);
    CHECK(betree_close(store) == BETREE_OK);
    return 0;
}
