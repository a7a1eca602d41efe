//! Contents of small files, kept whole in memory.
//!
//! A content belongs to the record beside which it was read: [`Recorded`] holds both. Every change of a file
//! replaces the record, and with it the content, so that no stale content can be left. Only the time of the
//! last access can be changed in a record without replacing it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ops::Deref;
use core::sync::atomic::Ordering::Relaxed;

use betree_platform::sync::Mutex;
use betree_platform::sync::atomic::AtomicUsize;

use crate::schema::Record;
use crate::schema::block::BLOCK;
use crate::types::{FileType, InodeId};

/// Bytes that one content takes beside its own, about.
const OVERHEAD_BYTES: usize = 64;

/// A record, and perhaps the file's content as of this record.
pub(crate) struct Recorded {
    record: Record,
    content: Option<Content>,
}

/// All bytes of a file; they count for the budget as long as they exist.
struct Content {
    bytes: Box<[u8]>,
    total_bytes: Arc<AtomicUsize>,
}

impl Content {
    fn cost_bytes(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.total_bytes.fetch_sub(self.cost_bytes(), Relaxed);
    }
}

impl From<Record> for Recorded {
    fn from(record: Record) -> Recorded {
        Recorded { record, content: None }
    }
}

impl Deref for Recorded {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Recorded {
    /// All bytes of the file, if they are in memory.
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_ref().map(|content| &*content.bytes)
    }

    /// Sets the time of the last access, on which the content does not depend.
    pub fn set_atime(&mut self, atime_ns: i64) {
        self.record.atime_ns = atime_ns;
    }

    /// Drops the content.
    pub fn drop_content(&mut self) {
        self.content = None;
    }
}

/// The budget of all contents, and the order in which they are dropped.
pub(crate) struct FileCache {
    total_bytes: Arc<AtomicUsize>,
    bytes_max: usize,
    /// One entry for each inode whose state says that it is queued; some have no content any more.
    queue: Mutex<VecDeque<InodeId>>,
}

impl FileCache {
    pub fn new(bytes_max: usize) -> FileCache {
        FileCache { total_bytes: Arc::default(), bytes_max, queue: Mutex::default() }
    }

    /// Whether the content of a file with this record may be kept.
    pub fn may_keep(&self, record: &Record) -> bool {
        let is_small = (1..=BLOCK).contains(&record.size);
        record.file_type == FileType::Regular
            && is_small
            && record.size as usize + OVERHEAD_BYTES <= self.bytes_max
    }

    /// Keeps a file's bytes. The caller holds the state under which they were read.
    pub fn keep(&self, recorded: &mut Recorded, bytes: Box<[u8]>) {
        let content = Content { bytes, total_bytes: self.total_bytes.clone() };
        self.total_bytes.fetch_add(content.cost_bytes(), Relaxed);
        recorded.content = Some(content);
    }

    /// Adds a file to the queue. Files whose `is_there` is false have left memory.
    pub fn queue(&self, node: InodeId, inodes: usize, is_there: impl Fn(InodeId) -> bool) {
        let mut queue = self.queue.lock();
        queue.push_back(node);
        if queue.len() > 2 * inodes + 64 {
            queue.retain(|node| is_there(*node));
        }
    }

    /// The next file whose content is to be dropped, while the contents are over the budget.
    pub fn next_to_drop(&self) -> Option<InodeId> {
        if self.total_bytes.load(Relaxed) <= self.bytes_max {
            return None;
        }
        self.queue.lock().pop_front()
    }
}
