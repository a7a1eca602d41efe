//! Quotas: whether what is stored as used is what is below the directory.

use alloc::collections::BTreeSet;
use alloc::format;

use super::Check;
use super::code::Code;
use crate::schema::{Amount, DATA, META, Stored, key};

/// Number of quotas that are counted; what is beyond is not.
const QUOTAS_MAX: usize = 100_000;

impl Check<'_> {
    /// Keeps the path of a directory with a quota, to be counted later.
    pub(super) fn has_quota(&mut self, path: &[u8]) {
        if self.quotas.len() < QUOTAS_MAX {
            self.quotas.push(path.to_vec());
        } else {
            self.unchecked.quotas += 1;
        }
    }

    /// Counts what is below each directory with a quota: a scan for each, so that what is in two is read
    /// twice.
    pub(super) fn quotas(&mut self) {
        for path in core::mem::take(&mut self.quotas) {
            self.quota(&path);
        }
    }

    fn quota(&mut self, path: &[u8]) {
        let mut found = Amount::default();
        let mut objects = BTreeSet::new();
        let mut pairs = self.op.scan(META, key::subtree(path));
        while let Some((at, bytes)) = self.next(META, &mut pairs) {
            match Stored::decode(at, bytes) {
                Ok(Stored::Inode(record)) => found = found + Amount::of(&record),
                Ok(Stored::Redirect(redirect)) => drop(objects.insert(redirect.oid)),
                Err(_) => {}
            }
        }
        // What a repair has noted as lost counts nothing: its removal takes nothing back.
        let mut is_known = !self.unread_names || !self.gaps.touch(META, &key::subtree(path));
        for oid in objects {
            let object = key::object(oid);
            let record = self.get(META, &object);
            is_known &= record.is_some() || !self.unread_names;
            if let Some(Ok(Stored::Inode(record))) =
                record.flatten().map(|bytes| Stored::decode(&object, &bytes))
            {
                found = found + Amount::of(&record);
            }
        }
        let own = key::own(path);
        let used = key::quota_use(&own);
        let (stored, is_lost) = match self.op.get(DATA, &used) {
            Err(error) if error.is_known_damage() => (Some(None), true),
            _ => (self.get(DATA, &used), false),
        };
        let Some(stored) = stored.filter(|_| is_known) else {
            self.unchecked.quotas += 1;
            return;
        };
        let stored = stored.as_deref().and_then(Amount::decode);
        if stored == Some(found) || self.stopped.is_some() {
            return;
        }
        let noun = |number: i64, one, many| if number == 1 { one } else { many };
        let amount = |amount: Amount| {
            let (bytes, objects) =
                (noun(amount.bytes, "byte", "bytes"), noun(amount.objects, "object", "objects"));
            (format!("{} {bytes}", amount.bytes), format!("{} {objects}", amount.objects))
        };
        let (bytes, objects) = amount(found);
        let why = if is_lost {
            format!("what is used of its quota was lost: there are {bytes} in {objects}")
        } else {
            let (says, of) = amount(stored.unwrap_or_default());
            format!("its quota counts {says} in {of}, but there are {bytes} in {objects}")
        };
        self.misfit(Code::WrongQuotaUse, &own, &why);
        self.mend_quota(Code::WrongQuotaUse, &own, found);
    }
}
