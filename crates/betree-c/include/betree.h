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
 * type: betree_close or betree_store_free, betree_dict_free, betree_batch_free, betree_iter_free. All of
 * them take NULL.
 *
 * Threads. Stores, dictionaries and batches can be used by many threads at once; an iterator by one thread
 * at a time. A handle is freed when no other thread uses it. Changes that a thread made are seen by the others
 * when the call returns.
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
   * A key, a value or a batch is larger than the store takes.
   */
  BETREE_TOO_LARGE = 15,
  /**
   * A batch and a dictionary belong to different stores.
   */
  BETREE_OTHER_STORE = 16,
  /**
   * The store needs a merge, which a program in C cannot register.
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
 * A list of changes of any dictionaries of one store. Many threads can use it at once; their changes stand
 * in it in the order of the calls.
 */
typedef struct betree_batch betree_batch;

/**
 * A dictionary: an ordered map from byte strings to byte strings. Many threads can use it at once.
 */
typedef struct betree_dict betree_dict;

/**
 * An iterator over the pairs of a range, from both ends, which ends with the first failure. One thread uses
 * it at a time. It is no snapshot: it reads some pairs at a time, and meets what is changed behind those.
 */
typedef struct betree_iter betree_iter;

/**
 * An open store. Many threads can use it at once.
 */
typedef struct betree_store betree_store;

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
} betree_options;

/**
 * A text in a buffer that a call has returned. A zero that does not count follows it.
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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

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
 * Removes every key of a range, once the batch is committed: see betree_delete_range.
 */
betree_status betree_batch_delete_range(const betree_batch *batch,
                                        const betree_dict *dict,
                                        const uint8_t *lo,
                                        size_t lo_len,
                                        const uint8_t *hi,
                                        size_t hi_len);

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
 * Frees the handle of a store. The store stays open while it has others (dictionaries, batches, iterators);
 * the last one closes it, and cannot report a failure: betree_close does. NULL is let be.
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
 * Makes a dictionary: BETREE_DICT_EXISTS if there is one of that name.
 */
betree_status betree_dict_create(const betree_store *store,
                                 const char *name,
                                 size_t name_len,
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BETREE_H */
