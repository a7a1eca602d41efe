//! Records that several threads read and change, and what each must be.
//!
//! A value carries its record's number and version. Only one thread at a time changes a record, and notes the
//! version once the change is made. So a reader knows what it may find: a version between the one that was
//! noted before it read and the one behind that which is noted afterwards.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};

use crate::data::{Data, Key, mix};
use crate::stores::{BATCH_OPERATIONS, Store};
use crate::workloads::Order;

/// The size of version and number at the start of a value.
const HEAD_BYTES: usize = 16;
/// The approximate number of records that a check gets one by one.
const CHECK_SAMPLE: u64 = 1000;

/// A version of a record. It is even where there is a value and odd where there is none; each change makes it
/// greater.
pub type Version = u32;

/// The version of a record that never was there.
const NEVER: Version = 1;

/// The version that a put makes of another.
fn after_put(version: Version) -> Version {
    (version | 1) + 1
}

/// Numbered records, of which the first [`len`](Records::len) were inserted.
pub struct Records {
    data: Data,
    order: Order,
    versions: Vec<AtomicU32>,
    inserted: AtomicU64,
}

impl Records {
    /// No records yet, with room for `data.pairs`. `order` is that of their keys among the numbers.
    pub fn new(data: Data, order: Order) -> Records {
        let versions = (0..data.pairs).map(|_| AtomicU32::new(NEVER)).collect();
        Records { data, order, versions, inserted: AtomicU64::new(0) }
    }

    /// The records of a database in which the first `count` were put once.
    pub fn loaded(data: Data, order: Order, count: u64) -> Records {
        let records = Records::new(data, order);
        (0..count.min(data.pairs)).for_each(|number| records.set(number, after_put(NEVER)));
        records.inserted.store(count.min(data.pairs), Ordering::Release);
        records
    }

    /// How many were inserted, those among them whose insertion is under way.
    pub fn len(&self) -> u64 {
        self.inserted.load(Ordering::Acquire).min(self.data.pairs)
    }

    /// The sizes of keys and values.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The number of a record to insert; `None` if there is no room.
    pub fn take_new(&self) -> Option<u64> {
        let number = self.inserted.fetch_add(1, Ordering::AcqRel);
        (number < self.data.pairs).then_some(number)
    }

    /// The key of a record.
    pub fn key(&self, number: u64) -> Key {
        self.data.key(match self.order {
            Order::Random => self.data.shuffled(number),
            Order::OfKeys => number,
        })
    }

    /// The noted version.
    pub fn version(&self, number: u64) -> Version {
        self.versions.get(number as usize).map_or(NEVER, |version| version.load(Ordering::Acquire))
    }

    fn set(&self, number: u64, version: Version) {
        if let Some(noted) = self.versions.get(number as usize) {
            noted.store(version, Ordering::Release);
        }
    }

    /// The value of a version: its head, then half random bytes and half one byte repeated, as compressible
    /// as the values of RocksDB's `db_bench`.
    pub fn value(&self, number: u64, version: Version, value: &mut Vec<u8>) {
        value.clear();
        value.extend_from_slice(&u64::from(version).to_le_bytes());
        value.extend_from_slice(&number.to_le_bytes());
        let random_bytes = (self.data.value_bytes / 2).max(HEAD_BYTES);
        let seed = mix(number ^ u64::from(version) << 40);
        let words = (1..).map(|count: u64| mix(seed.wrapping_add(count)).to_le_bytes());
        for word in words.take((random_bytes - HEAD_BYTES).div_ceil(8)) {
            value.extend_from_slice(&word);
        }
        value.truncate(random_bytes);
        value.resize(self.data.value_bytes.max(HEAD_BYTES), seed as u8);
    }

    /// Puts the next version of a record. The caller is the only one who changes it. Returns the size of the
    /// pair.
    pub fn put(&self, store: &mut dyn Store, number: u64, pair: &mut (Key, Vec<u8>)) -> Result<u64> {
        let version = after_put(self.version(number));
        pair.0 = self.key(number);
        self.value(number, version, &mut pair.1);
        store.put(std::slice::from_ref(pair))?;
        self.set(number, version);
        Ok((pair.0.len() + pair.1.len()) as u64)
    }

    /// Deletes a record, as [`put`](Records::put).
    pub fn delete(&self, store: &mut dyn Store, number: u64) -> Result<u64> {
        let key = self.key(number);
        store.delete(&key)?;
        self.set(number, self.version(number) | 1);
        Ok(key.len() as u64)
    }

    /// Inserts records until there are `count`, in large batches.
    pub fn fill(&self, store: &mut dyn Store, count: u64) -> Result<()> {
        while self.len() < count.min(self.data.pairs) {
            let first = self.len();
            let end = (first + BATCH_OPERATIONS as u64).min(count);
            let pairs: Vec<(Key, Vec<u8>)> = (first..end)
                .map(|number| {
                    let mut value = Vec::new();
                    self.value(number, after_put(NEVER), &mut value);
                    (self.key(number), value)
                })
                .collect();
            store.put(&pairs)?;
            (first..end).for_each(|number| self.set(number, after_put(NEVER)));
            self.inserted.store(end, Ordering::Release);
        }
        store.sync()
    }

    /// Reads a record and checks that it is one that the reader may find.
    pub fn read(&self, store: &dyn Store, number: u64) -> Result<()> {
        let before = self.version(number);
        let found = store.get(&self.key(number))?;
        self.check(number, before, found.as_deref())
    }

    /// Checks what a reader has found who noted the version before.
    fn check(&self, number: u64, before: Version, found: Option<&[u8]>) -> Result<()> {
        let newest = after_put(self.version(number));
        match found {
            // No reader runs beside deletions.
            None => ensure!(before % 2 == 1, "record {number} is gone; its version was {before}"),
            Some(value) => {
                let Some((version, of)) = self.head(value) else {
                    bail!("record {number} has a value of {} bytes", value.len());
                };
                ensure!(of == number, "record {number} has the value of record {of}");
                let is_seen = version.is_multiple_of(2) && (before..=newest).contains(&version);
                ensure!(is_seen, "record {number} has version {version}, not from {before} to {newest}");
            }
        }
        Ok(())
    }

    /// The version and the number in a value of the right size, of a record that there can be.
    fn head(&self, value: &[u8]) -> Option<(Version, u64)> {
        let (version, rest) = value.split_first_chunk()?;
        let version = Version::try_from(u64::from_le_bytes(*version)).ok()?;
        let is_whole = value.len() == self.data.value_bytes.max(HEAD_BYTES);
        let number = u64::from_le_bytes(*rest.first_chunk()?);
        (is_whole && number < self.data.pairs).then_some((version, number))
    }

    /// Checks a pair that a scan has found.
    pub fn check_pair(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some((version, number)) = self.head(value) else {
            bail!("a scan found a value of {} bytes", value.len());
        };
        ensure!(key == self.key(number), "a scan found the value of record {number} at another key");
        // Nobody knows what was noted when the cursor came by; but a version is never newer than the next.
        let newest = after_put(self.version(number));
        ensure!(version <= newest, "a scan found version {version} of record {number} before it was put");
        Ok(())
    }

    /// Checks each byte of all records by a scan, and about [`CHECK_SAMPLE`] by gets. Nothing changes
    /// meanwhile.
    pub fn check_all(&self, store: &dyn Store) -> Result<()> {
        let (mut expected, mut last, mut count, mut wrong) = (Vec::new(), None, 0, None);
        store.scan(&Key::default(), usize::MAX, &mut |key, value| {
            let is_right = self.head(value).is_some_and(|(_, number)| {
                let own = self.key(number);
                self.value(number, self.version(number), &mut expected);
                key == own && value == expected && last.replace(own) < Some(own)
            });
            if !is_right {
                wrong.get_or_insert_with(|| (key.to_vec(), value.to_vec()));
            }
            count += 1;
        })?;
        ensure!(wrong.is_none(), "a scan finds {wrong:02x?}, which was not put last, or is out of order");
        let there = (0..self.len()).filter(|number| self.version(*number).is_multiple_of(2)).count();
        ensure!(count == there, "a scan finds {count} records where {there} should be");
        for number in (0..self.len()).step_by((self.len() / CHECK_SAMPLE).max(1) as usize) {
            let version = self.version(number);
            self.value(number, version, &mut expected);
            let found = store.get(&self.key(number))?;
            let is_right = found.as_ref() == Some(&expected).filter(|_| version.is_multiple_of(2));
            ensure!(is_right, "record {number} of version {version} has {found:02x?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Records {
        Records::loaded(Data { pairs: 10, value_bytes: 100 }, Order::Random, 9)
    }

    fn value(records: &Records, number: u64, version: Version) -> Vec<u8> {
        let mut value = Vec::new();
        records.value(number, version, &mut value);
        value
    }

    #[test]
    fn a_reader_may_find_versions_from_what_was_noted_before_to_the_next() {
        let records = records();
        let first = records.version(3);
        let find = |version| records.check(3, first, Some(&value(&records, 3, version)));
        // The put of the next may be under way, of no other.
        assert!(find(first).is_ok() && find(first + 2).is_ok());
        assert!(find(first + 4).is_err() && find(first + 1).is_err() && find(0).is_err());
        // It was noted meanwhile: the old value may have been found, and one behind the new.
        records.set(3, first + 2);
        assert!(find(first).is_ok() && find(first + 4).is_ok() && find(first + 6).is_err());
        let late = records.version(3);
        assert!(records.check(3, late, Some(&value(&records, 3, first))).is_err());
    }

    #[test]
    fn a_record_is_gone_only_if_it_was_before_and_has_a_value_of_its_own() {
        let records = records();
        assert!(records.check(9, records.version(9), None).is_ok());
        assert!(records.check(3, records.version(3), None).is_err());
        let version = records.version(3);
        assert!(records.check(3, version, Some(&value(&records, 4, version))).is_err());
        assert!(records.check(3, version, Some(&value(&records, 3, version)[..99])).is_err());
        records.set(3, version | 1);
        assert!(records.check(3, records.version(3), None).is_ok());
        assert!(records.check(3, records.version(3), Some(&value(&records, 3, version + 2))).is_ok());
        assert!(records.check(3, records.version(3), Some(&value(&records, 3, version))).is_err());
    }

    #[test]
    fn there_is_room_for_so_many_new_records() {
        let records = records();
        assert_eq!((records.len(), records.take_new(), records.take_new()), (9, Some(9), None));
        assert_eq!(records.len(), 10);
    }
}
