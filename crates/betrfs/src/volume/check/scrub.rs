//! A scrub of a volume in use: the engine reads all that is stored, and the files in damaged parts get their
//! names here. What can be read of them is scanned, and no more.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree::{Cut, KeyRange, ScrubOptions, ScrubRecord, ScrubStep, Unreadable};

use super::damaged_keys::KEYS_MAX;
use super::losses::{Lost, ObjectNames};
use super::report::{Findings, Report};
use super::{Check, goes_on, note_damaged};
use crate::error::Result;
use crate::op::OpKind;
use crate::schema::key;
use crate::schema::{DATA, META, Stored, XattrValue};
use crate::types::FileType;
use crate::volume::Volume;

/// The result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// What it has found.
    pub report: Report,
    /// How far it has come; its problems also count those that were found before it was interrupted.
    pub record: ScrubRecord,
}

impl Volume {
    /// Reads all that is stored, past the cache, and compares it with its checksums while others use the
    /// volume: see [`Env::scrub`](betree::Env::scrub). The report has codes and names as that of
    /// [`check_in_use`](Volume::check_in_use); whether names, data and counts fit together is not looked at.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, _, _) = doc::volume()?;
    /// use std::ops::ControlFlow;
    ///
    /// use betree::{ScrubOptions, ScrubState};
    ///
    /// let scrubbed = volume.scrub(ScrubOptions::READ_ALL, &mut |_| ControlFlow::Continue(()))?;
    /// assert!(scrubbed.report.problems.is_empty());
    /// assert_eq!(scrubbed.record.state, ScrubState::Complete);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Env::scrub`](betree::Env::scrub). A problem found is not an error, and neither is an end by
    /// `step`.
    pub fn scrub(
        &self,
        options: ScrubOptions,
        step: &mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    ) -> Result<Scrubbed> {
        let mut findings = Findings::default();
        let mut damaged = Vec::new();
        let mut tell = |found: betree::Finding| {
            note_damaged(&mut damaged, &found);
            findings.found(found);
        };
        let record = self.env.scrub(options, &mut tell, step)?;
        if damaged.is_empty() {
            return Ok(Scrubbed { report: findings.report(&ObjectNames::default(), None), record });
        }
        let view = self.env.view();
        let op = self.query(OpKind::Internal).reading(&view);
        let mut go_on = goes_on;
        let mut check = Check::begin(op, findings, &mut go_on);
        damaged.iter().for_each(|(keys, error)| check.files_in(keys, error));
        check.listed_names();
        // Where space is short, the view ends, and some files stay without names.
        check.stopped = None;
        Ok(Scrubbed { report: check.finish()?.report, record })
    }
}

impl Check<'_> {
    /// Names the files with keys in a damaged structure, whether memory still has their contents or not.
    fn files_in(&mut self, keys: &KeyRange, error: &betree::Error) {
        let Some(losses) = self.findings.blame(error) else { return };
        let mut unreadable = Vec::new();
        let mut pairs = self.op.scan(keys.dict, (keys.lo.clone(), keys.hi.clone()));
        let mut owner = (Vec::new(), 0);
        for _ in 0..KEYS_MAX {
            let Some((at, _)) = pairs.next_past(&mut |part| unreadable.push(part)) else { break };
            self.damaged_key(losses, keys.dict, at, &mut owner);
        }
        for part in unreadable {
            if keys.dict == DATA {
                self.files_without(&part);
            }
            drop(self.pass(keys.dict, part));
        }
    }

    /// Names the files whose data stands in an unreadable range.
    fn files_without(&mut self, part: &Unreadable) {
        // The keys of a file's data begin with its own key and 00: that is before the range, or in it.
        let lo = part.lo.bytes();
        for (len, _) in lo.iter().enumerate().filter(|(_, byte)| **byte == 0) {
            let own = lo.get(..len).unwrap_or_default();
            if let Some(Some(record)) = self.get(META, own) {
                self.file_without(own, &record, part);
            }
        }
        let mut records = self.op.scan(META, (part.lo.clone(), part.hi.clone()));
        for _ in 0..KEYS_MAX {
            let Some((own, record)) = self.next(META, &mut records) else { break };
            self.file_without(own, record, part);
        }
    }

    /// Notes what a file with this stored record loses by an unreadable range of `data`.
    fn file_without(&mut self, own: &[u8], stored: &[u8], part: &Unreadable) {
        let Ok(Stored::Inode(record)) = Stored::decode(own, stored) else { return };
        if record.file_type == FileType::Regular {
            let begins_before = part.lo <= Cut::before(key::data(own));
            let mut expected = if begins_before { 0 } else { key::first_block_behind(own, &part.lo) };
            self.lost_blocks(own, &record, &mut expected, part.clone());
        }
        for attr in record.xattrs.iter().filter(|attr| matches!(attr.value, XattrValue::Stored(_))) {
            let at = key::xattr(own, &attr.name);
            if part.lo.is_above(&at) || !part.hi.is_above(&at) {
                continue;
            }
            let losses: Vec<usize> =
                part.errors.iter().filter_map(|error| self.findings.blame(error)).collect();
            for losses in losses {
                self.findings.lose(losses, &Lost::Attribute { own, name: &attr.name });
            }
            self.want_name(own);
        }
    }
}
