//! Nodes of an ingest on their way to the device: the threads of the writeback encode and write some of them
//! while the ingest builds the next one.
//!
//! The ingest alone gives nodes their places, in their order, because it may have to make room for them. An
//! error of a node comes back with a later one, or at the end.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::{Condvar, Mutex};

use super::{Encoded, Outgoing, Store};
use crate::error::Result;
use crate::invariant::internal;
use crate::io::AlignedBuf;
use crate::node::Node;
use crate::planted::{self, Bug};

/// The most nodes on their way: one is encoded while another is written. A third made nothing faster.
const NODES_MAX: usize = 2;

/// Waits for room on the device, and gives a node its place there.
pub(crate) type PlaceNode<'m> = &'m dyn Fn(Encoded) -> Result<Outgoing>;

/// What a thread does for a node, and whom it tells.
pub(super) struct Step {
    ticket: u64,
    work: Work,
    buffer: AlignedBuf,
    mailbox: Arc<Mailbox>,
}

enum Work {
    Encode { dict: u8, node: Arc<Node> },
    Write(Outgoing),
}

enum Done {
    Encoded(Encoded),
    Written(Outgoing),
}

/// Results of steps, with their tickets and buffers.
#[derive(Default)]
struct Mailbox {
    mail: Mutex<Vec<(u64, Result<Done>, AlignedBuf)>>,
    arrived: Condvar,
}

impl Mailbox {
    fn take(&self) -> Vec<(u64, Result<Done>, AlignedBuf)> {
        core::mem::take(&mut self.mail.lock())
    }

    fn is_empty(&self) -> bool {
        self.mail.lock().is_empty()
    }

    /// Waits until there is mail.
    fn wait(&self) {
        let mut mail = self.mail.lock();
        while mail.is_empty() {
            mail = self.arrived.wait(mail);
        }
    }
}

impl Step {
    /// Does the step and tells its result.
    pub fn run(self, store: &Store) {
        let Step { ticket, work, mut buffer, mailbox } = self;
        let done = match work {
            Work::Encode { dict, node } => {
                store.encode_node(dict, node, None, &mut buffer).map(Done::Encoded)
            }
            Work::Write(outgoing) if planted::is(Bug::IngestedNodesNamedUnwritten) => {
                Ok(Done::Written(outgoing))
            }
            Work::Write(outgoing) => store.write_node(outgoing, &buffer).map(Done::Written),
        };
        mailbox.mail.lock().push((ticket, done, buffer));
        mailbox.arrived.notify_all();
    }
}

/// How far a node is.
enum Stage {
    Encoding,
    Encoded(Encoded, AlignedBuf),
    Writing,
    Written(Outgoing),
}

/// The nodes of one ingest on their way, at most two. Dropping it waits until no thread works on them.
pub(crate) struct WriteBehind<'e> {
    store: &'e Store,
    mailbox: Arc<Mailbox>,
    /// Steps whose results were not taken.
    in_hand: usize,
    /// The oldest first.
    nodes: VecDeque<Stage>,
    /// The ticket of the oldest.
    first_ticket: u64,
    spare: Vec<AlignedBuf>,
}

impl<'e> WriteBehind<'e> {
    /// With no node.
    pub fn new(store: &'e Store) -> WriteBehind<'e> {
        WriteBehind {
            store,
            mailbox: Arc::default(),
            in_hand: 0,
            nodes: VecDeque::new(),
            first_ticket: 0,
            spare: Vec::new(),
        }
    }

    /// Takes a node that has no place yet, once fewer than two are on their way. Returns the nodes that were
    /// written since the last call, in the order in which they were given.
    ///
    /// # Errors
    /// Those of encoding, placing and writing this node or an earlier one. No further node must be given
    /// then.
    pub fn give(&mut self, dict: u8, node: Arc<Node>, place: PlaceNode<'_>) -> Result<Vec<Outgoing>> {
        let mut written = self.settle(NODES_MAX - 1, place)?;
        let ticket = self.first_ticket + self.nodes.len() as u64;
        self.nodes.push_back(Stage::Encoding);
        let buffer = self.spare.pop().unwrap_or_default();
        self.begin(ticket, Work::Encode { dict, node }, buffer);
        // Without threads it is encoded by now.
        written.extend(self.settle(NODES_MAX, place)?);
        Ok(written)
    }

    /// Waits until all nodes are written, and returns those that [`give`](WriteBehind::give) has not
    /// returned.
    ///
    /// # Errors
    /// As [`give`](WriteBehind::give).
    pub fn finish(&mut self, place: PlaceNode<'_>) -> Result<Vec<Outgoing>> {
        self.settle(0, place)
    }

    /// Whether no node is on its way.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn begin(&mut self, ticket: u64, work: Work, buffer: AlignedBuf) {
        self.in_hand += 1;
        let mailbox = Arc::clone(&self.mailbox);
        self.store.writeback.step(self.store, Step { ticket, work, buffer, mailbox });
    }

    /// Gives places to what is encoded, until no more than `most` nodes are on their way. Returns the oldest
    /// nodes as far as they are written.
    fn settle(&mut self, most: usize, place: PlaceNode<'_>) -> Result<Vec<Outgoing>> {
        let mut written = Vec::new();
        loop {
            self.take_mail()?;
            self.place_encoded(place)?;
            while let Some(stage) = self.nodes.pop_front() {
                match stage {
                    Stage::Written(outgoing) => {
                        self.first_ticket += 1;
                        written.push(outgoing);
                    }
                    stage => {
                        self.nodes.push_front(stage);
                        break;
                    }
                }
            }
            // Without threads there is mail of what was just begun.
            if self.nodes.len() <= most && self.mailbox.is_empty() {
                return Ok(written);
            }
            self.mailbox.wait();
        }
    }

    fn take_mail(&mut self) -> Result<()> {
        let mut failure = None;
        for (ticket, done, buffer) in self.mailbox.take() {
            self.in_hand = self.in_hand.saturating_sub(1);
            let stage = match done {
                Ok(Done::Encoded(encoded)) => Stage::Encoded(encoded, buffer),
                Ok(Done::Written(outgoing)) => {
                    self.spare.push(buffer);
                    Stage::Written(outgoing)
                }
                Err(error) => {
                    failure = failure.or(Some(error));
                    continue;
                }
            };
            let index = ticket.checked_sub(self.first_ticket).and_then(|index| usize::try_from(index).ok());
            let node = index.and_then(|index| self.nodes.get_mut(index));
            *node.ok_or_else(|| internal!("a node is on its way until it is written"))? = stage;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Gives the encoded nodes before the first that is not encoded yet their places, and has them written.
    fn place_encoded(&mut self, place: PlaceNode<'_>) -> Result<()> {
        for index in 0..self.nodes.len() {
            let Some(stage) = self.nodes.get_mut(index) else { break };
            match core::mem::replace(stage, Stage::Writing) {
                Stage::Encoded(encoded, buffer) => {
                    let outgoing = place(encoded)?;
                    self.begin(self.first_ticket + index as u64, Work::Write(outgoing), buffer);
                }
                Stage::Encoding => {
                    *stage = Stage::Encoding;
                    break;
                }
                later => *stage = later,
            }
        }
        Ok(())
    }
}

impl Drop for WriteBehind<'_> {
    fn drop(&mut self) {
        while self.in_hand > 0 {
            self.mailbox.wait();
            self.in_hand = self.in_hand.saturating_sub(self.mailbox.take().len());
        }
    }
}
