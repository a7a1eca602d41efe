//! Requests of a kernel: an input is a list of requests, sent to the server of the sound volume.

use std::io::IoSlice;
use std::sync::Arc;

use betrfs::{OpenOptions, Volume};
use betrfs_fuse::Errno;
use betrfs_fuse::protocol::NotifySink;
use betrfs_fuse::wire::{self, Opcode};
use betrfs_sim::kernel::connection::{Connection, Request, Travel};
use betrfs_sim::kernel::hostile;
use betrfs_sim::platform::SimPlatform;
use seeded::Rng;

use crate::volume::{CACHE_BYTES, sample};

const REQUESTS_MAX: usize = 64;
const ROOT_NODE: u64 = 1;

/// Takes notices, and knows no inode.
struct Deaf;

impl NotifySink for Deaf {
    fn send(&self, _: &[IoSlice<'_>]) -> Result<(), Errno> {
        Err(Errno::NOENT)
    }
}

/// Sends the requests of an input.
///
/// # Errors
/// A request panicked or damaged the volume.
pub fn try_input(input: &[u8]) -> Result<(), String> {
    let platform = Arc::new(SimPlatform::new(1));
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::new(platform) };
    let volume = Volume::open(Arc::new(sample()?), options).map_err(|error| error.to_string())?;
    let volume = Arc::new(volume);
    let connection = Connection::new(Arc::clone(&volume), Arc::new(Deaf), wire::MINOR);
    let (mut nodes, mut rest) = (vec![ROOT_NODE], input);
    for number in 0..REQUESTS_MAX {
        let Some((request, after)) = decode(rest, &nodes) else { break };
        rest = after;
        match connection.send(&request) {
            Ok(reply) => nodes.extend(reply.first_chunk().map(|node| u64::from_ne_bytes(*node))),
            Err(Errno::IO) => return Err(format!("request {number} fails with EIO: {request:?}")),
            Err(_) => {}
        }
        connection.send_late_notices();
    }
    let report = volume.check(&mut |_, _| ()).map_err(|error| error.to_string())?;
    volume.env().abandon();
    report.problems.first().map_or(Ok(()), |problem| Err(format!("a check finds: {problem}")))
}

/// The first request: opcode, node (the number of a reply, or 255 for one that follows), task and way,
/// lengths, structure, and what follows it.
fn decode<'a>(bytes: &'a [u8], nodes: &[u64]) -> Option<(Request, &'a [u8])> {
    let (&[opcode, node, task, structure_len, low, high], mut rest) = bytes.split_first_chunk()?;
    let nodeid = if node == u8::MAX {
        let (given, after) = rest.split_first_chunk()?;
        rest = after;
        u64::from_le_bytes(*given)
    } else {
        *nodes.get(usize::from(node) % nodes.len())?
    };
    let (structure, after) = rest.split_at(rest.len().min(structure_len.into()));
    let (names, after) = after.split_at(after.len().min(u16::from_le_bytes([low, high]).into()));
    let mut request = Request::new(Opcode::Getattr, nodeid);
    // DESTROY closes the volume.
    request.header.opcode = if u32::from(opcode) == Opcode::Destroy as u32 { 0 } else { opcode.into() };
    request.header.pid = u32::from(task & 3);
    request.travel = if task & 4 == 0 { Travel::Device } else { Travel::Ring };
    (request.structure, request.rest) = (structure.to_vec(), names.to_vec());
    Some((request, after))
}

/// Lists of requests that make and change files.
pub fn examples() -> Vec<Vec<u8>> {
    (0..8)
        .map(|seed| {
            let mut rng = Rng::new(seed);
            let mut bytes = Vec::new();
            for _ in 0..20 {
                let request = hostile::draw(&mut rng, &[ROOT_NODE]);
                let names = &request.rest[..request.rest.len().min(300)];
                let structure = &request.structure[..request.structure.len().min(200)];
                bytes.extend_from_slice(&[
                    request.header.opcode as u8,
                    rng.below(20) as u8,
                    request.header.pid as u8 & 3,
                ]);
                bytes.push(structure.len() as u8);
                bytes.extend_from_slice(&(names.len() as u16).to_le_bytes());
                bytes.extend_from_slice(structure);
                bytes.extend_from_slice(names);
            }
            bytes
        })
        .collect()
}
