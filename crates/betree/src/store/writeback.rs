//! Writes of nodes by background threads of the platform, so that all CPUs encode and the device has several
//! writes in hand.
//!
//! One checkpoint at a time uses it, and any number of ingests ([`WriteBehind`](super::WriteBehind)). Without
//! such threads the checkpoint's or the ingest's own thread writes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::queue::Queue;
use super::write_behind::Step;
use super::{NodePlace, Outgoing, Store};
use crate::error::Result;
use crate::io::AlignedBuf;
use crate::node::Node;

/// A node to be written, and its present place, if it has one.
struct Job {
    dict: u8,
    node: Arc<Node>,
    last: Option<NodePlace>,
}

/// Nodes on their way to the device. Nodes written by the threads lie there in the order of submission.
#[derive(Default)]
pub(crate) struct Writeback {
    queue: Queue<Job, Step, Result<Outgoing>>,
}

impl Writeback {
    /// Submits a node of a dictionary; `last` is its present place, if it has one.
    pub fn write(&self, store: &Store, dict: u8, node: Arc<Node>, last: Option<NodePlace>) {
        let Some(Job { dict, node, last }) = self.queue.give(Job { dict, node, last }) else { return };
        let mut buffer = AlignedBuf::default();
        let placed =
            store.encode_node(dict, node, last.as_ref(), &mut buffer).and_then(|node| store.place_node(node));
        self.queue.add_done(placed.and_then(|outgoing| store.write_node(outgoing, &buffer)));
    }

    /// Submits a step of an ingest; without threads it is done here. The step tells its result itself.
    pub(super) fn step(&self, store: &Store, step: Step) {
        if let Some(step) = self.queue.give_apart(step) {
            step.run(store);
        }
    }

    /// The results since the last call.
    pub fn take_done(&self) -> Vec<Result<Outgoing>> {
        self.queue.take_done()
    }

    /// Waits for all submitted nodes of the checkpoint. Returns the results since the last
    /// [`take_done`](Writeback::take_done).
    pub fn finish(&self) -> Vec<Result<Outgoing>> {
        self.queue.finish()
    }

    /// Writes submitted nodes until [`stop`](Writeback::stop) is called and none waits.
    pub fn serve(&self, store: &Store) {
        self.queue.serve(
            |Job { dict, node, last }, buffer| store.encode_node(dict, node, last.as_ref(), buffer),
            |encoded| encoded.and_then(|node| store.place_node(node)),
            |placed, buffer: &mut AlignedBuf| placed.and_then(|outgoing| store.write_node(outgoing, buffer)),
            |step| step.run(store),
        );
    }

    /// Whether a thread serves.
    #[cfg(test)]
    pub fn is_served(&self) -> bool {
        self.queue.is_served()
    }

    /// Makes every [`serve`](Writeback::serve) return, now and later.
    pub fn stop(&self) {
        self.queue.stop();
    }
}
