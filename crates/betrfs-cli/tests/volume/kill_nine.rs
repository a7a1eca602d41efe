//! Servers killed at random moments.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use betree_sim::Rng;
use betree_sim::harness::effort;
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};

use crate::history::History;
use crate::mounted::{Mounted, wait_for_end};
use crate::programs::{check_is_clean, setting};

const THREADS: u64 = 4;
const KILLS: u64 = 3;

#[test]
fn a_killed_server_loses_nothing_that_was_synced_and_leaves_nothing_half_done() {
    let by_chance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed = setting("BETRFS_SEED", by_chance.into());
    println!("again with BETRFS_SEED={seed} (what it does is the same, what runs first is not)");
    let mut rng = Rng::new(seed);
    let mounted = Mounted::of_size("4G");
    mounted.mount();
    let new = |n| History::new(mounted.path(format!("thread{n}")), seed % 1000 * THREADS + n);
    let mut histories: Vec<History> = (0..THREADS).map(new).collect();
    let (mut kept_in_all, mut unsynced_in_all) = (0, 0);
    for kill in 1..=effort(KILLS) {
        let server = mounted.server();
        thread::scope(|scope| {
            let threads: Vec<_> =
                histories.iter_mut().map(|history| scope.spawn(move || history.until_failure())).collect();
            thread::sleep(Duration::from_millis(rng.between(20, 2500) as u64));
            kill_process(server, Signal::KILL).unwrap();
            for error in threads.into_iter().map(|thread| thread.join().unwrap()) {
                // Calls fail only when the connection breaks.
                let raw = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
                assert!(DEAD.iter().any(|dead| raw == Some(*dead)), "{error}");
            }
        });
        wait_for_end(server);
        // The usual command, on the dead server's mount.
        mounted.mount();
        for history in &mut histories {
            let (kept, made, synced) = history.assert_a_prefix_survived();
            println!("kill {kill}: of {made} changes {kept} kept, {synced} of them synced");
            kept_in_all += kept;
            unsynced_in_all += made - synced;
        }
    }
    assert!(
        kept_in_all > 100 && unsynced_in_all > 0,
        "{kept_in_all} changes kept, {unsynced_in_all} not synced"
    );
    mounted.umount();
    check_is_clean(&mounted.volume);
}

/// Errors of calls on a mount with a dead server.
const DEAD: [Errno; 4] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV];
