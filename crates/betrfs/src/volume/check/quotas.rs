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
        let mut is_known = !self.gaps.touch(META, &key::subtree(path));
        for oid in objects {
            let object = key::object(oid);
            let record = self.get(META, &object);
            is_known &= record.is_some();
            if let Some(Ok(Stored::Inode(record))) =
                record.flatten().map(|bytes| Stored::decode(&object, &bytes))
            {
                found = found + Amount::of(&record);
            }
        }
        let own = key::own(path);
        let stored = self.get(DATA, &key::quota_use(&own));
        match stored.filter(|_| is_known) {
            None => self.unchecked.quotas += 1,
            Some(stored) => {
                let stored = stored.as_deref().and_then(Amount::decode);
                if stored != Some(found) && self.stopped.is_none() {
                    let (says, is) = (stored.unwrap_or_default(), found);
                    let noun = |number: i64, one, many| if number == 1 { one } else { many };
                    let why = format!(
                        "its quota counts {} {} in {} {}, but there are {} in {}",
                        says.bytes,
                        noun(says.bytes, "byte", "bytes"),
                        says.objects,
                        noun(says.objects, "object", "objects"),
                        is.bytes,
                        is.objects
                    );
                    self.misfit(Code::WrongQuotaUse, &own, &why);
                    self.mend_quota(Code::WrongQuotaUse, &own, found);
                }
            }
        }
    }
}
