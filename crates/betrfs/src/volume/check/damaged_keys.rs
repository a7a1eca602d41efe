//! Files in structures that are damaged on the device while memory still has their contents: whoever reads
//! them gets no error yet, so that no scan meets the damage.

use alloc::vec::Vec;

use betree::{DictId, KeyRange};

use super::Check;
use super::losses::Lost;
use crate::schema::block::BLOCK;
use crate::schema::key::{self, DataTag};
use crate::schema::{DATA, LINKS, META, Stored};

/// How many keys of each structure are looked at.
pub(super) const KEYS_MAX: usize = 4096;

impl Check<'_> {
    /// Names the files with keys in damaged structures, as far as these keys can still be read.
    pub(super) fn damaged_keys(&mut self, damaged: &[(KeyRange, betree::Error)]) {
        for (keys, error) in damaged {
            let Some(losses) = self.findings.blame(error) else { return };
            let mut pairs = self.op.scan(keys.dict, (keys.lo.clone(), keys.hi.clone()));
            let mut owner = (Vec::new(), 0);
            let mut seen = 0;
            // What cannot be read is met again by the other scans.
            while let Ok(Some((at, _))) = pairs.next()
                && seen < KEYS_MAX
                && self.may_go_on()
            {
                seen += 1;
                self.damaged_key(losses, keys.dict, at, &mut owner);
            }
        }
    }

    /// `owner` is the own key of the last file with its size.
    pub(super) fn damaged_key(&mut self, losses: usize, dict: DictId, at: &[u8], owner: &mut (Vec<u8>, u64)) {
        if dict == META && key::split_entry(at).is_some() {
            self.findings.lose(losses, &Lost::Name { own: at });
        } else if dict == LINKS {
            self.findings.lose(losses, &Lost::Link { own: at });
        } else if dict == DATA
            && let Some((own, tag)) = key::split_data(at)
        {
            if owner.0 != own {
                let stored = self.op.get(META, own).ok().flatten();
                let size = match stored.map(|bytes| Stored::decode(own, &bytes)) {
                    Some(Ok(Stored::Inode(record))) => record.size,
                    _ => u64::MAX,
                };
                *owner = (own.to_vec(), size);
            }
            let (own, size) = (&owner.0, owner.1);
            let lost = match tag {
                DataTag::Block(number) => {
                    let from = number.saturating_mul(BLOCK);
                    Lost::Data { own, from, to: from.saturating_add(BLOCK).min(size), size }
                }
                DataTag::Xattr(name) => Lost::Attribute { own, name },
                DataTag::QuotaUse | DataTag::Reserved(_) => return,
            };
            self.findings.lose(losses, &lost);
            self.want_name(own);
        }
    }
}
