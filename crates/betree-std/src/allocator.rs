//! What a program that embeds the engine asks of its allocator.

/// The environment for jemalloc, which reads it once, when a program starts. An arena for each thread would
/// keep for itself what others could use, and freed pages are given back after a second: soon enough for a
/// bound on memory, late enough that a stream of writes does not have the kernel clear each page anew. Huge
/// pages, where the kernel leaves them to programs: what the cache holds comes in pieces of many pages, and a
/// fault for each of them took a third of the time of reading in order.
pub const ALLOCATOR: [(&str, &str); 1] = [(
    "_RJEM_MALLOC_CONF",
    "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:true,thp:always",
)];
