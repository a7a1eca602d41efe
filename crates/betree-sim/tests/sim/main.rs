//! The laws of the engine, tried by seeded histories on simulated disks: one program, a module for each law.

mod backup;
#[cfg(feature = "planted-bugs")]
mod canaries;
mod clones;
mod compact;
mod compression;
mod costs;
mod crash_moments;
mod crashes;
mod damage;
mod expiry;
mod faults;
mod freeze;
mod full;
mod grow;
mod ingest;
mod isolation;
mod laws;
mod live_rot;
mod node_copies;
mod openings;
mod pair_compression;
mod rot;
mod threads;
mod traps;
mod trim;
mod upserts;
mod views;
