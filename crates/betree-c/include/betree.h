/*
 * The embedded store: named dictionaries of byte strings in one file. This file is made by cbindgen from the
 * crate betree-c.
 *
 * Results. A function that can fail returns a betree_status, and writes its results to where its last
 * arguments point, only when it returns BETREE_OK; otherwise a handle or a buffer there becomes NULL.
 * betree_last_error() says more about the last failure of the calling thread. A panic inside the library
 * comes back as BETREE_PANIC.
 *
 * Arguments. A pointer is NULL, where its function says that it may be, or points to what its type says. Keys,
 * values and names have a length beside them, and need no zero at their end; names are UTF-8. A length of 0
 * goes with any pointer. The library keeps no pointer to an argument after the call. Every handle keeps its
 * store open, and handles can be freed in any order.
 *
 * Memory. Each buffer that comes with a length is freed by betree_free, each handle by the function of its
 * type: betree_close or betree_store_free, betree_dict_free, betree_batch_free, betree_iter_free,
 * betree_view_free, betree_view_dict_free, betree_transaction_free. All of them take NULL.
 *
 * Threads. All handles can be used by many threads at once, except iterators: each by one thread at a time. A
 * handle is freed when no other thread uses it. Changes that a thread made are seen by the others when the call
 * returns. Calls may wait for the disk, and for callbacks that other threads are in.
 *
 * Callbacks. Each gets the context that was given with it. It must return: neither longjmp nor an exception of
 * C++ may leave it. It must not call the library, for the library may hold locks; a betree_progress_fn may.
 *
 * Processes. A store belongs to the process that has opened it. After fork(2) calls of the child fail with
 * BETREE_FORKED, and change nothing for the parent; its handles are not to be freed, as other threads of the
 * parent may have been at work with them. The child opens a store of its own, once the parent has closed its.
 */

#ifndef BETREE_H
#define BETREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * What a call has come to. Numbers stay the same in later versions, and new ones may be added.
 */
typedef enum {
  /**
   * It was done.
   */
  BETREE_OK = 0,
  /**
   * There is no such key, or no further pair. It is no failure, and betree_last_error() is as before.
   */
  BETREE_NOT_FOUND = 1,
  /**
   * An argument is NULL that must not be, a name is no UTF-8, or an option has no such value.
   */
  BETREE_BAD_ARGUMENT = 2,
  /**
   * Another process has the store open, or this one has it open already.
   */
  BETREE_IN_USE = 3,
  /**
   * There is no such file, and none was to be made.
   */
  BETREE_NO_SUCH_STORE = 4,
  /**
   * The file holds something else than a store.
   */
  BETREE_NOT_A_STORE = 5,
  /**
   * The store was made by a later version of the library.
   */
  BETREE_NEWER_STORE = 6,
  /**
   * The operating system refused.
   */
  BETREE_IO = 7,
  /**
   * There is no room, in the store or on its disk. The store goes on once there is.
   */
  BETREE_NO_SPACE = 8,
  /**
   * The store takes no changes: a write failed, or it was opened for reading.
   */
  BETREE_READ_ONLY = 9,
  /**
   * The store was closed.
   */
  BETREE_CLOSED = 10,
  /**
   * The store has no dictionary of that name.
   */
  BETREE_NO_SUCH_DICT = 11,
  /**
   * The store has a dictionary of that name.
   */
  BETREE_DICT_EXISTS = 12,
  /**
   * The dictionary was dropped after the handle was made.
   */
  BETREE_DICT_DROPPED = 13,
  /**
   * No dictionary can have that name.
   */
  BETREE_BAD_NAME = 14,
  /**
   * A key, a value, a batch or a transaction is larger than the store takes.
   */
  BETREE_TOO_LARGE = 15,
  /**
   * A batch or a transaction and a dictionary belong to different stores.
   */
  BETREE_OTHER_STORE = 16,
  /**
   * A merge is not registered, is another one than the dictionary's, or has failed.
   */
  BETREE_MERGE = 17,
  /**
   * The store's file is damaged.
   */
  BETREE_DAMAGED = 18,
  /**
   * There is no memory for the result.
   */
  BETREE_NO_MEMORY = 19,
  /**
   * The engine failed otherwise; betree_last_error() says how.
   */
  BETREE_ENGINE = 20,
  /**
   * A mistake in the library. The call may be half done; the store is as after a crash when it is opened
   * again.
   */
  BETREE_PANIC = 21,
  /**
   * Another change came first, and the transaction has changed nothing: it is to be tried again.
   */
  BETREE_CONFLICT = 22,
  /**
   * The view, or that of the transaction, has ended, because the store needed the space of what it held.
   */
  BETREE_VIEW_ENDED = 23,
  /**
   * The transaction was committed.
   */
  BETREE_TRANSACTION_ENDED = 24,
  /**
   * There is a file already where one is to be made.
   */
  BETREE_FILE_EXISTS = 25,
  /**
   * The callback has stopped the call.
   */
  BETREE_STOPPED = 26,
  /**
   * The store was opened by another process, of which this one is a fork.
   */
  BETREE_FORKED = 27,
  /**
   * A value is to expire in a dictionary that was not made for that.
   */
  BETREE_NO_EXPIRY = 28,
} betree_status;

/**
 * When changes survive a crash: values of betree_options.durability. In any case they survive in their
 * order, each whole.
 */
typedef enum {
  /**
   * Some time after the call returned, at most: betree_options.sync_every_ms.
   */
  BETREE_EVERY = 0,
  /**
   * When the call returns.
   */
  BETREE_PER_COMMIT = 1,
  /**
   * When betree_sync or betree_close returns.
   */
  BETREE_MANUAL = 2,
} betree_durability;

/**
 * How what is written is compressed: values of betree_options.compression. All can be read always.
 */
typedef enum {
  /**
   * As the store does of itself: with LZ4.
   */
  BETREE_USUAL = 0,
  /**
   * Not at all.
   */
  BETREE_UNCOMPRESSED = 1,
  /**
   * With LZ4.
   */
  BETREE_LZ4 = 2,
  /**
   * With Zstandard.
   */
  BETREE_ZSTD = 3,
} betree_compression;

/**
 * What hinders the commit of a transaction: values for betree_transaction_begin.
 */
typedef enum {
  /**
   * A change by others of what the transaction changes. Two that read what the other one changes may both
   * commit.
   */
  BETREE_SNAPSHOT = 0,
  /**
   * A change by others of what the transaction has read. All that commit have an order in which they could
   * have run one after the other.
   */
  BETREE_SERIALIZABLE = 1,
} betree_isolation;

/**
 * The kinds of merges: values of betree_merge.kind.
 */
typedef enum {
  /**
   * A function of the program.
   */
  BETREE_MERGE_FUNCTION = 0,
  /**
   * Adds numbers without a sign: value and delta are eight bytes, little-endian.
   */
  BETREE_MERGE_ADD_U64 = 1,
  /**
   * Adds numbers with a sign.
   */
  BETREE_MERGE_ADD_I64 = 2,
  /**
   * Keeps the greater one in the order of their bytes.
   */
  BETREE_MERGE_MAX = 3,
  /**
   * Puts the delta behind the value.
   */
  BETREE_MERGE_APPEND = 4,
  /**
   * Adds members to a set: each a length of four bytes, little-endian, and its bytes.
   */
  BETREE_MERGE_UNION_SET = 5,
} betree_merge_kind;

/**
 * A list of changes of any dictionaries of one store. Many threads can use it at once; their changes stand
 * in it in the order of the calls.
 */
typedef struct betree_batch betree_batch;

/**
 * A dictionary: an ordered map from byte strings to byte strings. Many threads can use it at once.
 */
typedef struct betree_dict betree_dict;

/**
 * An iterator over the pairs of a range, from both ends, which ends with the first failure, unless that is
 * BETREE_MERGE: then it goes on after the key. One thread uses it at a time. It reads some pairs at a time.
 * That of a view reads the view's moment, that of a transaction what the transaction sees; that of a
 * dictionary is no snapshot, and meets what is changed behind the pairs that it has read.
 */
typedef struct betree_iter betree_iter;

/**
 * What a merge makes. It is there for the call of the betree_merge_fn alone.
 */
typedef struct betree_merged betree_merged;

/**
 * An open store. Many threads can use it at once.
 */
typedef struct betree_store betree_store;

/**
 * Reads of one moment of a store, and changes of its dictionaries and their names that nobody else sees
 * before betree_transaction_commit. It waits for nobody and nobody for it. Its reads see its own changes.
 * Many threads can use it at once; their calls follow one another.
 */
typedef struct betree_transaction betree_transaction;

/**
 * One moment of a store: what was changed before it began is seen, and nothing later, in all dictionaries
 * and with their names of then. It begins without a look at the disk and hinders nobody; the space of what
 * is overwritten meanwhile comes back when it is freed. Many threads can use it at once.
 */
typedef struct betree_view betree_view;

/**
 * A dictionary as it was when a view began, also one that was dropped since. It keeps the view. Many threads
 * can use it at once.
 */
typedef struct betree_view_dict betree_view_dict;

/**
 * A text, or other bytes, in a buffer that a call has returned or a callback gets. A zero that does not
 * count follows it.
 */
typedef struct {
  /**
   * The first byte.
   */
  const char *data;
  /**
   * The number of bytes.
   */
  size_t len;
} betree_slice;

/**
 * How far a backup is.
 */
typedef struct {
  /**
   * The name of the dictionary that is copied now.
   */
  betree_slice dict;
  /**
   * The pairs and parts of large values that were copied.
   */
  uint64_t pairs;
  /**
   * The bytes of their keys and values.
   */
  uint64_t bytes;
} betree_progress;

/**
 * Called by betree_backup in its own thread, after each MiB or so. What it gets is valid until it returns;
 * where it returns false, the backup stops. It must return: neither longjmp nor an exception of C++ may
 * leave it.
 */
typedef bool (*betree_progress_fn)(void *context, const betree_progress *progress);

/**
 * A merge: makes a new value from the old one (NULL where the key is absent) and a delta, and gives it to
 * betree_merged_set; where that is not called, the key is removed. It returns whether that was possible: if
 * not, readers of the key get BETREE_MERGE, and old value and delta are kept.
 *
 * It is called by any thread, by several at once, and in threads of the library. It must depend on its
 * arguments alone, must not call the library except for betree_merged_set, and must return: neither longjmp
 * nor an exception of C++ may leave it.
 *
 * As `combine` it makes one delta with the effect of two: `old` is the older one, which is never NULL. Where
 * it returns false, both are kept.
 */
typedef bool (*betree_merge_fn)(void *context,
                                const uint8_t *old,
                                size_t old_len,
                                const uint8_t *delta,
                                size_t delta_len,
                                betree_merged *merged);

/**
 * A merge by the name under which dictionaries are bound to it. The name must mean the same function for as
 * long as the store lives. The store's own merges are there without registration, under the names
 * "betree.add_u64", "betree.add_i64", "betree.max", "betree.append" and "betree.union_set".
 */
typedef struct {
  /**
   * The name, UTF-8.
   */
  const char *name;
  /**
   * Its length in bytes.
   */
  size_t name_len;
  /**
   * A betree_merge_kind.
   */
  int32_t kind;
  /**
   * The function, of BETREE_MERGE_FUNCTION alone.
   */
  betree_merge_fn merge;
  /**
   * The function that combines two deltas; it may be NULL.
   */
  betree_merge_fn combine;
  /**
   * What the functions are called with. It must stay until the store is closed and all its handles are
   * freed.
   */
  void *context;
} betree_merge;

/**
 * How a store is opened. All zeros stand for what is usual.
 */
typedef struct {
  /**
   * Memory for what was read and what is not written yet, in bytes; 0 is 64 MiB.
   */
  size_t cache_bytes;
  /**
   * With BETREE_EVERY: after how many milliseconds changes survive a crash; 0 is 1000.
   */
  uint64_t sync_every_ms;
  /**
   * A betree_durability.
   */
  int32_t durability;
  /**
   * A betree_compression.
   */
  int32_t compression;
  /**
   * Nothing is written, changes are refused, and others may have the store open for reading too.
   */
  bool read_only;
  /**
   * Where there is no file, none is made.
   */
  bool must_exist;
  /**
   * The store is opened though a merge of its dictionaries is not registered: deltas wait for it, and a
   * read of a value that has some fails with BETREE_MERGE.
   */
  bool keep_missing_merges;
  /**
   * The merges that are registered; NULL if there are none.
   */
  const betree_merge *merges;
  /**
   * The number of merges.
   */
  size_t merge_count;
} betree_options;

/**
 * The change of another that a transaction may not pass over.
 */
typedef struct {
  /**
   * The name of the dictionary.
   */
  betree_slice dict;
  /**
   * The key, or the place where the changed range begins. Its data is NULL if the dictionary itself was
   * made, renamed or dropped.
   */
  betree_slice key;
  /**
   * The number of the other change, or of one behind it.
   */
  uint64_t by;
} betree_conflict;

/**
 * A condition of a value, which is NULL where the key is absent. It is called by betree_transaction_expect
 * and by the commit, in the threads of these calls, and must not call the library.
 */
typedef bool (*betree_predicate_fn)(void *context, const uint8_t *value, size_t value_len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Copies the store into a new file, as it is at this moment; writers go on meanwhile. The copy is a store of
 * its own, and is durable when this returns. BETREE_STOPPED if the callback has stopped it. Where it fails,
 * no file is left. The callback may be NULL.
 */
betree_status betree_backup(const betree_store *store,
                            const char *path,
                            betree_progress_fn progress,
                            void *context);

/**
 * An empty batch.
 */
betree_status betree_batch_new(const betree_store *store, betree_batch **batch);

/**
 * Frees a batch; changes that were not committed are not made. NULL is let be.
 */
void betree_batch_free(betree_batch *batch);

/**
 * Sets the value of a key, once the batch is committed. On a failure the batch is as before.
 */
betree_status betree_batch_put(const betree_batch *batch,
                               const betree_dict *dict,
                               const uint8_t *key,
                               size_t key_len,
                               const uint8_t *value,
                               size_t value_len);

/**
 * Removes a key, once the batch is committed.
 */
betree_status betree_batch_delete(const betree_batch *batch,
                                  const betree_dict *dict,
                                  const uint8_t *key,
                                  size_t key_len);

/**
 * Changes the value of a key by the dictionary's merge, once the batch is committed: see betree_upsert.
 */
betree_status betree_batch_upsert(const betree_batch *batch,
                                  const betree_dict *dict,
                                  const uint8_t *key,
                                  size_t key_len,
                                  const uint8_t *delta,
                                  size_t delta_len);

/**
 * Removes every key of a range, once the batch is committed: see betree_delete_range.
 */
betree_status betree_batch_delete_range(const betree_batch *batch,
                                        const betree_dict *dict,
                                        const uint8_t *lo,
                                        size_t lo_len,
                                        const uint8_t *hi,
                                        size_t hi_len);

/**
 * Removes every key that begins with a prefix, once the batch is committed.
 */
betree_status betree_batch_delete_prefix(const betree_batch *batch,
                                         const betree_dict *dict,
                                         const uint8_t *prefix,
                                         size_t prefix_len);

/**
 * Makes the changes, all or none, in their order. The batch stays as it is, and can be committed again.
 */
betree_status betree_batch_commit(const betree_batch *batch);

/**
 * Forgets all changes of a batch.
 */
betree_status betree_batch_clear(const betree_batch *batch);

/**
 * Frees the handle of a dictionary; the dictionary stays. NULL is let be.
 */
void betree_dict_free(betree_dict *dict);

/**
 * The value of a key, which is freed by betree_free: BETREE_NOT_FOUND if there is none.
 */
betree_status betree_get(const betree_dict *dict,
                         const uint8_t *key,
                         size_t key_len,
                         uint8_t **value,
                         size_t *value_len);

/**
 * The values of several keys, in one list of as many slices, in their order, which is freed as a whole by
 * betree_free: that of a key without a value has NULL as its data. What the keys need of the disk is asked
 * for together.
 */
betree_status betree_get_many(const betree_dict *dict,
                              const betree_slice *keys,
                              size_t count,
                              betree_slice **values);

/**
 * Takes the first pair out, and returns key and value, each to be freed by betree_free: BETREE_NOT_FOUND if
 * there is none. Of threads that do so at the same time each gets another pair.
 */
betree_status betree_pop_first(const betree_dict *dict,
                               uint8_t **key,
                               size_t *key_len,
                               uint8_t **value,
                               size_t *value_len);

/**
 * Sets the value of a key.
 */
betree_status betree_put(const betree_dict *dict,
                         const uint8_t *key,
                         size_t key_len,
                         const uint8_t *value,
                         size_t value_len);

/**
 * Removes a key, if it is there; whether it was is not read.
 */
betree_status betree_delete(const betree_dict *dict, const uint8_t *key, size_t key_len);

/**
 * Removes every key from `lo` on and before `hi`, at a cost that does not depend on how many there are.
 * Where `lo` is NULL, from the first key on; where `hi` is NULL, to the last.
 */
betree_status betree_delete_range(const betree_dict *dict,
                                  const uint8_t *lo,
                                  size_t lo_len,
                                  const uint8_t *hi,
                                  size_t hi_len);

/**
 * Removes every key that begins with a prefix, at a cost that does not depend on how many there are.
 */
betree_status betree_delete_prefix(const betree_dict *dict,
                                   const uint8_t *prefix,
                                   size_t prefix_len);

/**
 * Makes what begins with `to` what begins with `from`: the same pairs under other names. The cost does not
 * depend on how many there are. What began with `to` before is gone.
 */
betree_status betree_clone_prefix(const betree_dict *dict,
                                  const uint8_t *from,
                                  size_t from_len,
                                  const uint8_t *to,
                                  size_t to_len);

/**
 * As betree_clone_prefix, and what began with `from` is gone.
 */
betree_status betree_rename_prefix(const betree_dict *dict,
                                   const uint8_t *from,
                                   size_t from_len,
                                   const uint8_t *to,
                                   size_t to_len);

/**
 * The bytes that a range takes in the file, those of them that no clone shares, which a deletion would
 * free, and about how many pairs it has: the nearer, the more alike they are in size, and the fewer changes
 * have come since the last checkpoints. The ends of the range are as for betree_delete_range.
 */
betree_status betree_estimate(const betree_dict *dict,
                              const uint8_t *lo,
                              size_t lo_len,
                              const uint8_t *hi,
                              size_t hi_len,
                              uint64_t *stored_bytes,
                              uint64_t *exclusive_bytes,
                              uint64_t *pairs);

/**
 * Rewrites a range in the order of its keys, so that it takes less of the file, and a scan reads it in large
 * pieces. Nobody sees other pairs meanwhile, and others go on beside it. What clones share is left as it is.
 * Returns the bytes that it has written to the file. BETREE_NO_SPACE if there is no room beside what it
 * replaces. The ends of the range are as for betree_delete_range.
 */
betree_status betree_compact(const betree_dict *dict,
                             const uint8_t *lo,
                             size_t lo_len,
                             const uint8_t *hi,
                             size_t hi_len,
                             uint64_t *written_bytes);

/**
 * The dictionary of a name whose values may expire, bound to a merge if that is not NULL; it is made if
 * there is none. BETREE_NO_EXPIRY if there is one that was made without, BETREE_MERGE if its merge is
 * another.
 */
betree_status betree_dict_ensure_expiring(const betree_store *store,
                                          const char *name,
                                          size_t name_len,
                                          const char *merge,
                                          size_t merge_len,
                                          betree_dict **dict);

/**
 * Sets the value of a key until a time, in nanoseconds since 1970-01-01 00:00 UTC, from which on nobody sees
 * it: BETREE_NO_EXPIRY if the dictionary was made without betree_dict_ensure_expiring.
 */
betree_status betree_put_until(const betree_dict *dict,
                               const uint8_t *key,
                               size_t key_len,
                               const uint8_t *value,
                               size_t value_len,
                               int64_t expires_ns);

/**
 * The time at which the value of a key expires, in nanoseconds since 1970-01-01 00:00 UTC: BETREE_NOT_FOUND
 * if it never does, or if there is none.
 */
betree_status betree_expires_at(const betree_dict *dict,
                                const uint8_t *key,
                                size_t key_len,
                                int64_t *expires_ns);

/**
 * The pairs from the key `lo` on and before `hi`. Where `lo` is NULL, from the first one on; where `hi` is
 * NULL, to the last.
 */
betree_status betree_iter_range(const betree_dict *dict,
                                const uint8_t *lo,
                                size_t lo_len,
                                const uint8_t *hi,
                                size_t hi_len,
                                betree_iter **out);

/**
 * The pairs whose keys begin with a prefix.
 */
betree_status betree_iter_prefix(const betree_dict *dict,
                                 const uint8_t *prefix,
                                 size_t prefix_len,
                                 betree_iter **out);

/**
 * The next pair from the front: BETREE_NOT_FOUND if all were met. Key and value are valid until the next
 * call with this iterator, and are not to be freed.
 */
betree_status betree_iter_next(betree_iter *iter,
                               const uint8_t **key,
                               size_t *key_len,
                               const uint8_t **value,
                               size_t *value_len);

/**
 * The next pair from the back, as betree_iter_next. A pair is met once, from the front or from the back.
 */
betree_status betree_iter_prev(betree_iter *iter,
                               const uint8_t **key,
                               size_t *key_len,
                               const uint8_t **value,
                               size_t *value_len);

/**
 * Frees an iterator. NULL is let be.
 */
void betree_iter_free(betree_iter *iter);

/**
 * Gives the result of a merge, which is copied. Called again, it replaces what was given.
 */
betree_status betree_merged_set(betree_merged *merged, const uint8_t *value, size_t value_len);

/**
 * Changes the value of a key by the dictionary's merge, without reading it: the delta is kept, and merged
 * when the value is read.
 */
betree_status betree_upsert(const betree_dict *dict,
                            const uint8_t *key,
                            size_t key_len,
                            const uint8_t *delta,
                            size_t delta_len);

/**
 * The dictionary of a name, which is made if there is none.
 */
betree_status betree_dict_ensure(const betree_store *store,
                                 const char *name,
                                 size_t name_len,
                                 betree_dict **dict);

/**
 * The dictionary of a name: BETREE_NO_SUCH_DICT if there is none.
 */
betree_status betree_dict_open(const betree_store *store,
                               const char *name,
                               size_t name_len,
                               betree_dict **dict);

/**
 * The dictionary of a name that is bound to a merge; it is made if there is none. BETREE_MERGE if there is
 * one with another merge. If the merge is NULL, it has none.
 */
betree_status betree_dict_ensure_with(const betree_store *store,
                                      const char *name,
                                      size_t name_len,
                                      const char *merge,
                                      size_t merge_len,
                                      betree_dict **dict);

/**
 * Makes a dictionary, bound to a merge if that is not NULL: BETREE_DICT_EXISTS if there is one of that name.
 */
betree_status betree_dict_create(const betree_store *store,
                                 const char *name,
                                 size_t name_len,
                                 const char *merge,
                                 size_t merge_len,
                                 betree_dict **dict);

/**
 * Removes a dictionary with all that it holds, at a cost that does not depend on that. Its handles fail with
 * BETREE_DICT_DROPPED from then on, and are still to be freed.
 */
betree_status betree_dict_drop(const betree_store *store,
                               const char *name,
                               size_t name_len);

/**
 * Renames a dictionary. Its handles stay good.
 */
betree_status betree_dict_rename(const betree_store *store,
                                 const char *from,
                                 size_t from_len,
                                 const char *to,
                                 size_t to_len);

/**
 * Makes a dictionary that holds what another one holds at this moment, at a cost that does not depend on how
 * much that is. The place for a handle of the new one may be NULL.
 */
betree_status betree_dict_clone(const betree_store *store,
                                const char *from,
                                size_t from_len,
                                const char *to,
                                size_t to_len,
                                betree_dict **dict);

/**
 * The names of all dictionaries, in order. The names and their slices are one buffer, which is freed by one
 * betree_free.
 */
betree_status betree_dict_list(const betree_store *store,
                               betree_slice **names,
                               size_t *count);

/**
 * Frees a buffer that a call has returned; NULL is let be.
 */
void betree_free(void *buffer);

/**
 * What the last failure of the calling thread was, as text that ends with a zero: empty if there was none.
 * It is valid until the thread's next failure, and is not to be freed.
 */
const char *betree_last_error(void);

/**
 * Opens the store in a file, or makes one. The path ends with a zero; the options may be NULL.
 */
betree_status betree_open(const char *path, const betree_options *options, betree_store **store);

/**
 * Makes everything durable, releases the file, and frees the handle. From then on the store's other handles
 * fail with BETREE_CLOSED, and are still to be freed. On a failure the handle stays: close it again, or free
 * it. NULL is let be.
 */
betree_status betree_close(betree_store *store);

/**
 * Frees the handle of a store. The store stays open while it has others (dictionaries, batches, iterators,
 * views, transactions); the last one closes it, and cannot report a failure: betree_close does. NULL is let
 * be.
 */
void betree_store_free(betree_store *store);

/**
 * Makes all changes durable that were made before the call.
 */
betree_status betree_sync(const betree_store *store);

/**
 * What the store has done and what it takes, as text: lines of a name, a space and a number. The text is
 * freed by betree_free.
 */
betree_status betree_stats(const betree_store *store,
                           char **text,
                           size_t *len);

/**
 * Walks through everything in the file: structure, checksums, references, space. The text has a line for
 * each finding, and is freed by betree_free; `findings` is their number, 0 for a sound store.
 */
betree_status betree_check(const betree_store *store,
                           char **text,
                           size_t *len,
                           size_t *findings);

/**
 * Begins a transaction; `isolation` is a betree_isolation.
 */
betree_status betree_transaction_begin(const betree_store *store,
                                       int32_t isolation,
                                       betree_transaction **transaction);

/**
 * Frees a transaction. Changes that were not committed are dropped. NULL is let be.
 */
void betree_transaction_free(betree_transaction *transaction);

/**
 * Makes the changes seen, all or none, and ends the transaction: all other calls with it fail with
 * BETREE_TRANSACTION_ENDED from then on, and the handle is still to be freed. BETREE_CONFLICT if another
 * change came first: nothing was changed, and all of it is to be tried again in a new transaction. The place
 * for what is known of the conflict may be NULL; it is freed by one betree_free.
 */
betree_status betree_transaction_commit(const betree_transaction *transaction,
                                        betree_conflict **conflict);

/**
 * The dictionary of a name, as of the transaction's beginning and with its own changes: BETREE_NO_SUCH_DICT
 * if there is none.
 */
betree_status betree_transaction_dict(const betree_transaction *transaction,
                                      const char *name,
                                      size_t name_len,
                                      betree_dict **dict);

/**
 * The names of all dictionaries, as betree_dict_list.
 */
betree_status betree_transaction_dict_list(const betree_transaction *transaction,
                                           betree_slice **names,
                                           size_t *count);

/**
 * Makes a dictionary, bound to a merge if that is not NULL. The handle is good for this transaction, and
 * everywhere once that has committed.
 */
betree_status betree_transaction_dict_create(const betree_transaction *transaction,
                                             const char *name,
                                             size_t name_len,
                                             const char *merge,
                                             size_t merge_len,
                                             betree_dict **dict);

/**
 * Renames a dictionary, once the transaction commits.
 */
betree_status betree_transaction_dict_rename(const betree_transaction *transaction,
                                             const char *from,
                                             size_t from_len,
                                             const char *to,
                                             size_t to_len);

/**
 * Makes a dictionary that holds what another one holds, as the transaction sees it. The handle is good for
 * this transaction, and everywhere once that has committed; its place may be NULL.
 */
betree_status betree_transaction_dict_clone(const betree_transaction *transaction,
                                            const char *from,
                                            size_t from_len,
                                            const char *to,
                                            size_t to_len,
                                            betree_dict **dict);

/**
 * Removes a dictionary with all that it holds, once the transaction commits.
 */
betree_status betree_transaction_dict_drop(const betree_transaction *transaction,
                                           const char *name,
                                           size_t name_len);

/**
 * The value of a key as of the transaction's beginning, with its own changes, which is freed by betree_free:
 * BETREE_NOT_FOUND if there is none.
 */
betree_status betree_transaction_get(const betree_transaction *transaction,
                                     const betree_dict *dict,
                                     const uint8_t *key,
                                     size_t key_len,
                                     uint8_t **value,
                                     size_t *value_len);

/**
 * Sets the value of a key.
 */
betree_status betree_transaction_put(const betree_transaction *transaction,
                                     const betree_dict *dict,
                                     const uint8_t *key,
                                     size_t key_len,
                                     const uint8_t *value,
                                     size_t value_len);

/**
 * Removes a key, if it is there.
 */
betree_status betree_transaction_delete(const betree_transaction *transaction,
                                        const betree_dict *dict,
                                        const uint8_t *key,
                                        size_t key_len);

/**
 * Changes the value of a key by the dictionary's merge: see betree_upsert. With BETREE_SNAPSHOT it counts as
 * a change of the key.
 */
betree_status betree_transaction_upsert(const betree_transaction *transaction,
                                        const betree_dict *dict,
                                        const uint8_t *key,
                                        size_t key_len,
                                        const uint8_t *delta,
                                        size_t delta_len);

/**
 * As betree_transaction_upsert, for a delta that depends on nothing that was read: it conflicts with no
 * change of the key by others.
 */
betree_status betree_transaction_upsert_blind(const betree_transaction *transaction,
                                              const betree_dict *dict,
                                              const uint8_t *key,
                                              size_t key_len,
                                              const uint8_t *delta,
                                              size_t delta_len);

/**
 * Removes every key of a range: see betree_delete_range.
 */
betree_status betree_transaction_delete_range(const betree_transaction *transaction,
                                              const betree_dict *dict,
                                              const uint8_t *lo,
                                              size_t lo_len,
                                              const uint8_t *hi,
                                              size_t hi_len);

/**
 * Removes every key that begins with a prefix.
 */
betree_status betree_transaction_delete_prefix(const betree_transaction *transaction,
                                               const betree_dict *dict,
                                               const uint8_t *prefix,
                                               size_t prefix_len);

/**
 * Makes what begins with `to` what begins with `from`: see betree_clone_prefix.
 */
betree_status betree_transaction_clone_prefix(const betree_transaction *transaction,
                                              const betree_dict *dict,
                                              const uint8_t *from,
                                              size_t from_len,
                                              const uint8_t *to,
                                              size_t to_len);

/**
 * As betree_transaction_clone_prefix, and what began with `from` is gone.
 */
betree_status betree_transaction_rename_prefix(const betree_transaction *transaction,
                                               const betree_dict *dict,
                                               const uint8_t *from,
                                               size_t from_len,
                                               const uint8_t *to,
                                               size_t to_len);

/**
 * The pairs from the key `lo` on and before `hi` with the transaction's own changes, as betree_iter_range.
 * It reads some pairs at a time, which all count as read. It fails with BETREE_TRANSACTION_ENDED once the
 * transaction has ended.
 */
betree_status betree_transaction_range(const betree_transaction *transaction,
                                       const betree_dict *dict,
                                       const uint8_t *lo,
                                       size_t lo_len,
                                       const uint8_t *hi,
                                       size_t hi_len,
                                       betree_iter **iter);

/**
 * The pairs whose keys begin with a prefix, as betree_transaction_range.
 */
betree_status betree_transaction_prefix(const betree_transaction *transaction,
                                        const betree_dict *dict,
                                        const uint8_t *prefix,
                                        size_t prefix_len,
                                        betree_iter **iter);

/**
 * Makes the commit depend on a condition of a value in place of the value: a change of the key by others is
 * a conflict only if the condition no longer holds. `holds` says whether it holds now; if not, nothing
 * depends on it. The predicate and its context must stay until the transaction is committed or freed.
 */
betree_status betree_transaction_expect(const betree_transaction *transaction,
                                        const betree_dict *dict,
                                        const uint8_t *key,
                                        size_t key_len,
                                        betree_predicate_fn predicate,
                                        void *context,
                                        bool *holds);

/**
 * A place in a transaction to which betree_transaction_roll_back returns: a number of this transaction.
 */
betree_status betree_transaction_savepoint(const betree_transaction *transaction,
                                           uint64_t *savepoint);

/**
 * Drops the changes since a savepoint, which stays; those behind it end. What was read since still counts as
 * read. BETREE_BAD_ARGUMENT, and nothing is dropped, if the savepoint has ended or never was.
 */
betree_status betree_transaction_roll_back(const betree_transaction *transaction,
                                           uint64_t savepoint);

/**
 * Begins a view of this moment.
 */
betree_status betree_view_begin(const betree_store *store, betree_view **view);

/**
 * Frees the handle of a view. The view ends when its dictionaries and iterators are freed too. NULL is let
 * be.
 */
void betree_view_free(betree_view *view);

/**
 * Ends a view: its dictionaries and iterators fail with BETREE_VIEW_ENDED from then on, and the space of
 * what it held comes back. All handles are still to be freed.
 */
betree_status betree_view_end(const betree_view *view);

/**
 * The number of the last change that a view sees. A later view has the same number or a greater one.
 */
betree_status betree_view_last_change(const betree_view *view,
                                      uint64_t *number);

/**
 * The names of all dictionaries that there were, as betree_dict_list.
 */
betree_status betree_view_dict_list(const betree_view *view, betree_slice **names, size_t *count);

/**
 * The dictionary that had the name: BETREE_NO_SUCH_DICT if there was none.
 */
betree_status betree_view_dict_open(const betree_view *view,
                                    const char *name,
                                    size_t name_len,
                                    betree_view_dict **dict);

/**
 * Frees the handle of a view's dictionary. NULL is let be.
 */
void betree_view_dict_free(betree_view_dict *dict);

/**
 * The value that a key had, which is freed by betree_free: BETREE_NOT_FOUND if there was none.
 */
betree_status betree_view_get(const betree_view_dict *dict,
                              const uint8_t *key,
                              size_t key_len,
                              uint8_t **value,
                              size_t *value_len);

/**
 * The pairs that there were from the key `lo` on and before `hi`, as betree_iter_range.
 */
betree_status betree_view_range(const betree_view_dict *dict,
                                const uint8_t *lo,
                                size_t lo_len,
                                const uint8_t *hi,
                                size_t hi_len,
                                betree_iter **iter);

/**
 * The pairs that there were whose keys begin with a prefix.
 */
betree_status betree_view_prefix(const betree_view_dict *dict,
                                 const uint8_t *prefix,
                                 size_t prefix_len,
                                 betree_iter **iter);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BETREE_H */
