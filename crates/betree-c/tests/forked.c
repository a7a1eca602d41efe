/* A fork of a process with an open store cannot use it, and changes nothing for its parent: forked STORE */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static uint8_t *value;
static size_t len;

static int child(betree_store *store, betree_dict *dict, betree_transaction *own, const char *path) {
    const uint8_t *key, *seen;
    size_t key_len, seen_len;
    betree_store *second;
    betree_iter *iter;

    FAILS(BETREE_FORKED, "fork", betree_get(dict, B("k"), &value, &len));
    FAILS(BETREE_FORKED, "fork", betree_put(dict, B("k"), B("child")));
    FAILS(BETREE_FORKED, "fork", betree_sync(store));
    FAILS(BETREE_FORKED, "fork", betree_transaction_commit(own, NULL));
    CHECK(betree_iter_prefix(dict, B(""), &iter) == BETREE_OK);
    FAILS(BETREE_FORKED, "fork", betree_iter_next(iter, &key, &key_len, &seen, &seen_len));
    /* Nor does it open it beside its parent. */
    FAILS(BETREE_IN_USE, "open already", betree_open(path, NULL, &second));
    /* Where it frees its handles in spite of what the header says, its parent's lock stays. */
    betree_iter_free(iter);
    betree_transaction_free(own);
    betree_dict_free(dict);
    FAILS(BETREE_FORKED, "fork", betree_close(store));
    betree_store_free(store);
    FAILS(BETREE_IN_USE, "open already", betree_open(path, NULL, &second));
    return 0;
}

int main(int argc, char **argv) {
    betree_store *store;
    betree_dict *dict;
    betree_transaction *own;
    int status;

    CHECK(argc == 2);
    CHECK(betree_open(argv[1], NULL, &store) == BETREE_OK);
    CHECK(betree_dict_ensure(store, N("d"), &dict) == BETREE_OK);
    CHECK(betree_put(dict, B("k"), B("parent")) == BETREE_OK);
    CHECK(betree_transaction_begin(store, BETREE_SNAPSHOT, &own) == BETREE_OK);
    CHECK(betree_transaction_put(own, dict, B("own"), B("")) == BETREE_OK);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        /* It must not wait for threads that only its parent has. */
        alarm(60);
        exit(child(store, dict, own, argv[1]));
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    CHECK(betree_transaction_commit(own, NULL) == BETREE_OK);
    betree_transaction_free(own);
    CHECK(betree_get(dict, B("k"), &value, &len) == BETREE_OK && len == 6 && memcmp(value, "parent", 6) == 0);
    betree_free(value);
    betree_dict_free(dict);
    CHECK(betree_close(store) == BETREE_OK);
    CHECK(betree_open(argv[1], NULL, &store) == BETREE_OK);
    CHECK(betree_dict_open(store, N("d"), &dict) == BETREE_OK);
    CHECK(betree_get(dict, B("own"), &value, &len) == BETREE_OK && len == 0);
    betree_free(value);
    betree_dict_free(dict);
    CHECK(betree_close(store) == BETREE_OK);
    return 0;
}
