//! Law: whatever a client sends, it gets an answer or an error number; no request panics, damages the volume
//! or keeps the next one from being answered.
#![allow(clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;

use betree_platform::Device;
use betree_sim::SimDisk;
use betree_sim::harness::{effort, guarded, seeds};
use betrfs_fuse::Errno;
use betrfs_fuse::protocol::NotifySink;
use betrfs_fuse::wire::{self, Opcode};
use betrfs_sim::drive::Drive;
use betrfs_sim::kernel::connection::{Connection, Request};
use betrfs_sim::kernel::hostile;
use betrfs_sim::platform::SimPlatform;
use betrfs_sim::setup::Setup;
use seeded::Rng;

const HISTORIES: u64 = 100;
const REQUESTS: u64 = 300;
/// The least number of different errors that requests reach.
const ERRNOS_MIN: usize = 14;
const ROOT_NODE: u64 = 1;

/// Takes notices, and knows no inode.
struct Deaf;

impl NotifySink for Deaf {
    fn send(&self, _: &[IoSlice<'_>]) -> Result<(), Errno> {
        Err(Errno::NOENT)
    }
}

/// How often each outcome of each opcode came; `None` stands for success.
type Outcomes = BTreeMap<(u32, Option<i32>), u64>;

/// The node that a reply is about.
fn node_in(opcode: Option<Opcode>, reply: &[u8]) -> Option<u64> {
    use Opcode::{Create, Link, Lookup, Mkdir, Mknod, Symlink, Tmpfile};
    let is_entry = matches!(opcode?, Lookup | Mknod | Mkdir | Symlink | Link | Create | Tmpfile);
    let (node, _) = reply.split_first_chunk().filter(|_| is_entry)?;
    Some(u64::from_ne_bytes(*node)).filter(|node| *node != 0)
}

/// Sends hostile requests to a new volume.
fn run(seed: u64, count: u64, outcomes: &mut Outcomes) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let setup = Setup::draw(&mut rng);
    let platform = Arc::new(SimPlatform::new(seed));
    let disk = SimDisk::new(setup.volume_bytes).which_seeks(setup.seeks);
    let disk = Arc::new(Drive::new(disk, setup.first_extent()));
    let device = || Arc::clone(&disk) as Arc<dyn Device>;
    setup.format(device(), &platform).map_err(|error| error.to_string())?;
    let volume = Arc::new(setup.open(device(), &platform).map_err(|error| error.to_string())?);
    let connection = Connection::new(Arc::clone(&volume), Arc::new(Deaf), wire::MINOR);
    let mut nodes = vec![ROOT_NODE];
    for number in 0..count {
        let request = hostile::draw(&mut rng, &nodes);
        let answer = connection.send(&request);
        connection.send_late_notices();
        let opcode = request.header.opcode;
        match &answer {
            Ok(reply) => nodes.extend(node_in(Opcode::of(opcode), reply)),
            // On a sound disk that is a panic, or a damage.
            Err(Errno::IO) => return Err(format!("request {number} fails with EIO: {request:?}")),
            Err(_) => {}
        }
        let errno = answer.err().map(Errno::raw_os_error);
        *outcomes.entry((opcode, errno)).or_default() += 1;
        if number % 8 == 0 {
            volume.env().run_due_work().map_err(|error| error.to_string())?;
        }
    }
    let alive = Request { structure: vec![0; 16], ..Request::new(Opcode::Getattr, ROOT_NODE) };
    connection.send(&alive).map_err(|errno| format!("the root afterwards: {errno}"))?;
    let report = volume.check(&mut |_, _| ()).map_err(|error| error.to_string())?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("a check finds: {problem}"));
    }
    connection.send(&Request::new(Opcode::Destroy, 0)).map_err(|errno| format!("DESTROY: {errno}"))?;
    connection.close().map_err(|error| format!("the close: {error}"))?;
    let volume = setup.open(device(), &platform).map_err(|error| format!("opened anew: {error}"))?;
    let report = volume.check(&mut |_, _| ()).map_err(|error| error.to_string())?;
    report.problems.first().map_or(Ok(()), |problem| Err(format!("a check of it, opened anew: {problem}")))
}

#[test]
fn every_request_gets_an_answer_and_the_volume_stays_sound() {
    let mut outcomes = Outcomes::new();
    for seed in seeds(effort(HISTORIES)) {
        let ran = guarded(&format!("seed {seed}"), || run(seed, REQUESTS, &mut outcomes));
        if let Err(what) = ran {
            panic!(
                "seed {seed}: {what}\n  replay: BETRFS_SEED={seed} cargo test -p betrfs-sim --test sim hostile_requests::"
            );
        }
    }
    if std::env::var("BETRFS_SEED").is_ok() {
        return;
    }
    // A law says little about what its requests do not reach.
    for opcode in Opcode::ALL {
        use Opcode::{BatchForget, Destroy, Flush, Forget, Init, Interrupt, Opendir, Statfs, Syncfs};
        let came = |is_refused| {
            outcomes.keys().any(|(of, errno)| *of == *opcode as u32 && errno.is_some() == is_refused)
        };
        let is_never_refused = matches!(opcode, Forget | BatchForget | Statfs | Syncfs | Destroy);
        // The refusal of the first FLUSH tells the kernel to send none.
        let is_always_refused = matches!(opcode, Init | Interrupt | Opendir | Destroy | Flush);
        assert!(came(false) || is_always_refused, "{opcode:?} never succeeds");
        assert!(came(true) || is_never_refused, "{opcode:?} is never refused");
    }
    let errnos: BTreeSet<i32> = outcomes.keys().filter_map(|(_, errno)| *errno).collect();
    assert!(errnos.len() >= ERRNOS_MIN, "{errnos:?}");
}
