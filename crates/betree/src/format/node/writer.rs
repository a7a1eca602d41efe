//! The parts of a node's header to bytes.

use alloc::vec::Vec;

use super::{RANGES_MAX, RunRef};
use crate::key::Cut;
use crate::node_id::NodeId;

/// The bytes of a header so far.
pub(super) struct Writer {
    pub out: Vec<u8>,
}

impl Writer {
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.out.extend_from_slice(bytes);
    }

    pub fn cut(&mut self, cut: &Cut) {
        self.out.push(u8::from(cut.is_after()));
        self.bytes(cut.bytes());
    }

    /// A child, with the number of its node table.
    pub fn child(&mut self, child: NodeId) {
        self.u32(child.slot);
        self.u32(child.generation);
        self.out.extend_from_slice(&0u16.to_le_bytes());
    }

    pub fn runs(&mut self, runs: &[RunRef]) {
        self.u32(runs.len() as u32);
        for run in runs {
            self.u32(run.offset);
            self.u32(run.stored_len);
            self.u32(run.raw_len);
            self.u32(run.stored_as.with_asked(run.asked) | run.ranges.min(RANGES_MAX) << 8);
            self.u64(run.checksum);
            self.u64(run.last_msn);
        }
    }
}
