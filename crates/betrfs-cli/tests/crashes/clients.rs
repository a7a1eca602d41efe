//! Several clients at once: each appends records to a file of its own and makes it durable now and then.

use std::array;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use parking_lot::Mutex;

use crate::bed::Bed;
use crate::disk_log::PowerCut;
use crate::judge::recovered;

const CLIENTS: usize = 4;
const RECORDS: usize = 100;
const RECORD_BYTES: usize = 64;
const FATES: u64 = 4;

/// A number of records for each client.
type Counts = [usize; CLIENTS];

/// The first records of a client.
fn records(client: usize, count: usize) -> Vec<u8> {
    seeded::bytes(client as u64, 0, count * RECORD_BYTES)
}

/// What the clients know.
#[derive(Default)]
struct Known {
    /// The records written so far.
    done: [AtomicUsize; CLIENTS],
    /// For each record of each client, those that had been written before it began.
    before: [Mutex<Vec<Counts>>; CLIENTS],
    /// What had been written before a sync began, and the number of the disk's calls when it returned.
    durable: Mutex<Vec<(usize, Counts)>>,
}

impl Known {
    fn done(&self) -> Counts {
        self.done.each_ref().map(|count| count.load(SeqCst))
    }

    fn run(&self, client: usize, bed: &Bed) {
        let mut file = File::create(bed.path(&client.to_string())).unwrap();
        let all = records(client, RECORDS);
        for (number, record) in all.chunks(RECORD_BYTES).enumerate() {
            self.before[client].lock().push(self.done());
            file.write_all(record).unwrap();
            self.done[client].store(number + 1, SeqCst);
            if number % 9 == client {
                let written = self.done();
                file.sync_all().unwrap();
                self.durable.lock().push((bed.disk.events(), written));
            }
        }
    }

    /// Whether a disk holds what it must; returns the number of records.
    fn judge(&self, cut: &PowerCut<'_>, fate: u64) -> Result<usize, String> {
        let found = recovered(cut.disk.crash((cut.at as u64) << 8 | fate))?;
        let len = |client: usize| found.file_bytes(&format!("/{client}")).unwrap_or(0);
        let counts: Counts = array::from_fn(|client| len(client) as usize / RECORD_BYTES);
        for (client, count) in counts.into_iter().enumerate() {
            if len(client) > 0 && !found.has_file(&format!("/{client}"), &records(client, count)) {
                return Err(format!("client {client}: {} bytes are not its first records", len(client)));
            }
        }
        let holds = |needed: &Counts| counts.iter().zip(needed).all(|(count, needed)| count >= needed);
        for (_, needed) in self.durable.lock().iter().filter(|(events, _)| *events <= cut.at) {
            if !holds(needed) {
                return Err(format!("{counts:?} records are there, and {needed:?} were durable"));
            }
        }
        for (client, count) in counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            let needed = self.before[client].lock()[count - 1];
            if !holds(&needed) {
                return Err(format!("{counts:?}: the last of client {client} was written after {needed:?}"));
            }
        }
        Ok(counts.iter().sum())
    }
}

#[test]
fn a_sync_of_one_client_keeps_what_all_have_done_and_the_rest_is_a_prefix_over_all() {
    let (bed, known) = (Bed::new(), Known::default());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (bed, known) = (&bed, &known);
            scope.spawn(move || known.run(client, bed));
        }
    });
    let (log, _) = bed.end();
    let (mut images, mut found) = (0, Vec::new());
    log.replay(|cut| {
        for fate in 0..if cut.is_pending { FATES } else { 1 } {
            let all = known
                .judge(cut, fate)
                .unwrap_or_else(|what| panic!("after event {}, fate {fate}: {what}", cut.at));
            images += 1;
            found.push(all);
        }
    });
    found.sort_unstable();
    found.dedup();
    assert!(images >= 50 && found.len() >= 10, "{images} images, {} different ones", found.len());
}
