//! Options of the allocator for programs that embed the engine.

/// Environment variables for jemalloc, which reads them once, when a program starts.
///
/// One arena, because arenas of threads would keep memory that others could use. Freed pages go back to the
/// kernel after a second: soon enough for a bound on memory, late enough that a stream of writes does not
/// make the kernel clear each page anew. Huge pages, where the kernel leaves them to programs: pieces of the
/// cache span many pages, and a fault for each took a third of the time of sequential reads.
pub const ALLOCATOR: [(&str, &str); 1] = [(
    "_RJEM_MALLOC_CONF",
    "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0,background_thread:true,thp:always",
)];
