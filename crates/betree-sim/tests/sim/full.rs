//! A small volume of the usual geometry, filled to its end with large and small values in two dictionaries:
//! deletes return their room, and closing and opening need no room that is missing.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use betree::{Batch, Cut, DictId, Env, Error, Geometry, Options, Replace};
use betree_platform::Device;
use betree_sim::{MemDevice, OnSync, Rng, problems};

const VOLUME_BYTES: usize = 16 << 20;
const CACHE_BYTES: usize = 4 << 20;
const RECORDS: DictId = DictId(0);
const BLOCKS: DictId = DictId(1);
const BLOCK_BYTES: usize = 4096;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// Files as a file system keeps them: a record, and blocks under keys that begin with the file's number.
struct Files {
    device: Arc<MemDevice>,
    env: Env,
    whole: BTreeSet<u64>,
}

impl Files {
    fn open(device: Arc<MemDevice>) -> Env {
        Env::open(device, Options::new(CACHE_BYTES, Arc::new(Replace))).unwrap()
    }

    fn blocks_of(number: u64) -> u64 {
        if number.is_multiple_of(8) { 48 } else { 1 }
    }

    fn put(&self, number: u64) -> Result<(), Error> {
        let mut batch = Batch::new();
        batch.put(RECORDS, &number.to_be_bytes(), &noise(number, 100));
        self.env.commit(&batch)?;
        for block in 0..Files::blocks_of(number) {
            let mut batch = Batch::new();
            let key = [number.to_be_bytes(), block.to_be_bytes()].concat();
            batch.put(BLOCKS, &key, &noise(number << 16 | block, BLOCK_BYTES));
            self.env.commit(&batch)?;
        }
        Ok(())
    }

    /// Puts files from `numbers` on until one does not fit.
    fn fill(&mut self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            match self.put(number) {
                Ok(()) => self.whole.insert(number),
                Err(Error::NoSpace) => {
                    self.remove(number);
                    return;
                }
                Err(error) => panic!("a full volume says that, not: {error}"),
            };
        }
        panic!("the volume was never full");
    }

    fn remove(&mut self, number: u64) {
        let mut batch = Batch::new();
        batch.delete(RECORDS, &number.to_be_bytes());
        let prefix = number.to_be_bytes();
        batch.mark_freeing(Files::blocks_of(number) * BLOCK_BYTES as u64);
        batch.delete_range(BLOCKS, &Cut::before(prefix.to_vec()), &Cut::after(prefix.to_vec()));
        self.env.commit(&batch).unwrap();
        self.whole.remove(&number);
    }

    fn free_bytes(&self) -> u64 {
        self.env.reclaim().unwrap();
        self.env.space().free_bytes
    }

    fn bytes(&self) -> u64 {
        self.whole.iter().map(|number| Files::blocks_of(*number) * BLOCK_BYTES as u64).sum()
    }

    fn check(&self) {
        for number in &self.whole {
            let record = self.env.get(RECORDS, &number.to_be_bytes()).unwrap();
            assert_eq!(record, Some(noise(*number, 100)), "the record of {number}");
            for block in 0..Files::blocks_of(*number) {
                let key = [number.to_be_bytes(), block.to_be_bytes()].concat();
                let found = self.env.get(BLOCKS, &key).unwrap();
                assert!(found == Some(noise(number << 16 | block, BLOCK_BYTES)), "block {block} of {number}");
            }
        }
        let problems = problems(&self.env).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
    }

    fn reopen(&mut self, clean: bool) {
        if clean {
            self.env.close().unwrap();
        } else {
            self.env.sync().unwrap();
        }
        self.device = Arc::new(self.device.copy());
        self.env = Files::open(self.device.clone());
    }
}

#[test]
fn deletes_on_a_full_volume_return_their_room_and_it_opens_again() {
    let device = Arc::new(MemDevice::new(VOLUME_BYTES as u64));
    let geometry = Geometry::for_volume(VOLUME_BYTES as u64, 2);
    Env::format(Arc::clone(&device) as Arc<dyn Device>, &geometry, [1; 16]).unwrap();
    let mut files = Files { env: Files::open(device.clone()), device, whole: BTreeSet::new() };
    let empty = files.free_bytes();
    for round in 0..6u64 {
        files.fill(round * 10_000..);
        let (full, held) = (files.free_bytes(), files.bytes());
        assert!(held > empty / 4 * 3, "round {round}: {held} bytes fill {empty}");
        files.check();

        for number in files.whole.clone().into_iter().filter(|number| number % 16 < 8) {
            files.remove(number);
        }
        let deleted = held - files.bytes();
        let gained = files.free_bytes() - full;
        assert!(gained > deleted / 4 * 3, "round {round}: {deleted} bytes were deleted, {gained} are free");
        if round % 2 == 1 {
            files.reopen(round % 4 == 1);
        }
        // Half of the deleted bytes again, in other sizes.
        let mut number = round * 10_000 + 5_000;
        while files.bytes() < held - deleted / 2 {
            files.put(number).unwrap_or_else(|error| panic!("round {round}, file {number}: {error}"));
            files.whole.insert(number);
            number += 3;
        }
        files.check();
        for number in files.whole.clone() {
            files.remove(number);
        }
        let now = files.free_bytes();
        assert!(now > empty / 10 * 9, "round {round}: of {empty} bytes {now} came back");
        if round % 2 == 0 {
            files.reopen(round % 4 == 0);
        }
    }
}

#[test]
fn a_request_for_room_waits_for_a_reclaim_under_way() {
    const LARGE: DictId = BLOCKS;
    let device = Arc::new(OnSync::new(MemDevice::new(VOLUME_BYTES as u64)));
    let geometry = Geometry::for_volume(VOLUME_BYTES as u64, 2);
    Env::format(Arc::clone(&device) as Arc<dyn Device>, &geometry, [1; 16]).unwrap();
    let env = Env::open(Arc::clone(&device) as Arc<dyn Device>, Options::new(CACHE_BYTES, Arc::new(Replace)))
        .unwrap();
    const NUMBERS: u64 = 1500;
    for number in 0..NUMBERS {
        let mut batch = Batch::new();
        batch.put(LARGE, &number.to_be_bytes(), &noise(number, BLOCK_BYTES));
        env.commit(&batch).unwrap();
    }
    env.checkpoint().unwrap();
    let full = env.space().free_bytes;
    let mut batch = Batch::new();
    batch.mark_freeing(NUMBERS * BLOCK_BYTES as u64);
    batch.delete_range(LARGE, &Cut::before(Vec::new()), &Cut::after(NUMBERS.to_be_bytes().to_vec()));
    env.commit(&batch).unwrap();

    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    device.at_next(move || {
        begun.send(()).unwrap();
        // A call that does not return at once rightly waits for this sync.
        let _ = may_go_on.recv_timeout(Duration::from_millis(300));
    });
    let seen = thread::scope(|scope| {
        let first = scope.spawn(|| env.reclaim());
        has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
        env.reclaim().unwrap();
        let seen = env.space().free_bytes;
        // The sync may rightly be over by now.
        let _ = go_on.send(());
        first.join().unwrap().unwrap();
        seen
    });
    assert_eq!(seen, env.space().free_bytes);
    assert!(seen > full + NUMBERS * BLOCK_BYTES as u64 / 4 * 3, "{full} bytes were free, {seen} are now");
}
