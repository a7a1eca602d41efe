//! Writing behind the back of whoever makes a checkpoint: threads that the home lends encode nodes and
//! take them to the device, so that all CPUs do it and the device has several in hand.
//!
//! One checkpoint at a time uses it. Without such threads it writes by itself.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_sys::sync::{Condvar, Mutex};

use super::{NodePlace, Outgoing, Store};
use crate::error::Result;
use crate::io::AlignedBuf;
use crate::node::Node;

/// Nodes that wait or are being written at once, at most: one for each of two threads, and one
/// ready for whoever is done first.
const IN_FLIGHT_MAX: usize = 3;

/// A node to be written, and where it stands now, if it does.
struct Job {
    node: Arc<Node>,
    last: Option<NodePlace>,
    ticket: u64,
}

#[derive(Default)]
struct State {
    threads: usize,
    waiting: VecDeque<Job>,
    being_written: usize,
    next_ticket: u64,
    /// Whose turn it is to be given blocks: nodes lie on the device in the order in which they were given.
    turn: u64,
    done: Vec<Result<Outgoing>>,
    stop: bool,
}

/// Nodes on their way to the device.
#[derive(Default)]
pub(crate) struct Behind {
    state: Mutex<State>,
    wanted: Condvar,
    changed: Condvar,
}

impl State {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.being_written
    }
}

impl Behind {
    /// Gives a node to be written; `last` is where it stands now, if it does.
    pub fn write(&self, store: &Store, node: Arc<Node>, last: Option<NodePlace>) {
        let mut state = self.state.lock();
        // Those who write may be told to stop while somebody waits for them.
        while state.threads > 0 {
            if state.in_flight() >= IN_FLIGHT_MAX {
                state = self.changed.wait(state);
                continue;
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.push_back(Job { node, last, ticket });
            self.wanted.notify_one();
            return;
        }
        drop(state);
        let mut buffer = AlignedBuf::default();
        let placed =
            store.encode_node(node, last.as_ref(), &mut buffer).and_then(|node| store.place_node(node));
        let result = placed.and_then(|outgoing| store.write_node(outgoing, &buffer));
        self.state.lock().done.push(result);
    }

    /// What was written since this was last asked, and what could not be.
    pub fn take_done(&self) -> Vec<Result<Outgoing>> {
        core::mem::take(&mut self.state.lock().done)
    }

    /// Waits for all that was given. What was written since [`take_done`](Behind::take_done) was last asked.
    pub fn finish(&self) -> Vec<Result<Outgoing>> {
        let mut state = self.state.lock();
        while state.in_flight() > 0 {
            state = self.changed.wait(state);
        }
        core::mem::take(&mut state.done)
    }

    /// Writes what is given, until [`stop`](Behind::stop) and until nothing waits any more.
    pub fn serve(&self, store: &Store) {
        let mut buffer = AlignedBuf::default();
        let mut state = self.state.lock();
        state.threads += 1;
        loop {
            match state.waiting.pop_front() {
                Some(Job { node, last, ticket }) => {
                    state.being_written += 1;
                    drop(state);
                    let encoded = store.encode_node(node, last.as_ref(), &mut buffer);
                    state = self.state.lock();
                    while state.turn != ticket {
                        state = self.changed.wait(state);
                    }
                    let placed = encoded.and_then(|node| store.place_node(node));
                    state.turn += 1;
                    drop(state);
                    self.changed.notify_all();
                    let result = placed.and_then(|outgoing| store.write_node(outgoing, &buffer));
                    state = self.state.lock();
                    state.being_written -= 1;
                    state.done.push(result);
                    self.changed.notify_all();
                }
                None if state.stop => break,
                None => {
                    // Memory that is of use only while a checkpoint is made.
                    buffer = AlignedBuf::default();
                    state = self.wanted.wait(state);
                }
            }
        }
        state.threads -= 1;
    }

    /// Makes every [`serve`](Behind::serve) return, now and later.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.wanted.notify_all();
    }
}
