//! Writing behind the back of whoever makes a checkpoint: threads that the platform lends encode nodes and
//! take them to the device, so that all CPUs do it and the device has several in hand.
//!
//! One checkpoint at a time uses it. Without such threads it writes by itself.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::queue::Queue;
use super::{NodePlace, Outgoing, Store};
use crate::error::Result;
use crate::io::AlignedBuf;
use crate::node::Node;

/// A node to be written, and where it stands now, if it does.
struct Job {
    /// The dictionary that it is of.
    dict: u8,
    node: Arc<Node>,
    last: Option<NodePlace>,
}

/// Nodes on their way to the device. Those that the threads write lie on it in the order in which they were
/// given.
#[derive(Default)]
pub(crate) struct Writeback {
    queue: Queue<Job, Result<Outgoing>>,
}

impl Writeback {
    /// Gives a node of a dictionary to be written; `last` is where it stands now, if it does.
    pub fn write(&self, store: &Store, dict: u8, node: Arc<Node>, last: Option<NodePlace>) {
        let Some(Job { dict, node, last }) = self.queue.give(Job { dict, node, last }) else { return };
        let mut buffer = AlignedBuf::default();
        let placed =
            store.encode_node(dict, node, last.as_ref(), &mut buffer).and_then(|node| store.place_node(node));
        self.queue.add_done(placed.and_then(|outgoing| store.write_node(outgoing, &buffer)));
    }

    /// What was written since this was last asked, and what could not be.
    pub fn take_done(&self) -> Vec<Result<Outgoing>> {
        self.queue.take_done()
    }

    /// Waits for all that was given. What was written since [`take_done`](Writeback::take_done) was last
    /// asked.
    pub fn finish(&self) -> Vec<Result<Outgoing>> {
        self.queue.finish()
    }

    /// Writes what is given, until [`stop`](Writeback::stop) and until nothing waits any more.
    pub fn serve(&self, store: &Store) {
        self.queue.serve(
            |Job { dict, node, last }, buffer| store.encode_node(dict, node, last.as_ref(), buffer),
            |encoded| encoded.and_then(|node| store.place_node(node)),
            |placed, buffer: &mut AlignedBuf| placed.and_then(|outgoing| store.write_node(outgoing, buffer)),
        );
    }

    /// Makes every [`serve`](Writeback::serve) return, now and later.
    pub fn stop(&self) {
        self.queue.stop();
    }
}
