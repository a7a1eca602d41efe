//! Simulated lives of a volume: histories of all operations of the library from seeds, beside a model of
//! plain maps, on disks whose power is cut and that fail.
//!
//! A [`Step`](step::Step) carries all its choices, so any part of a history replays alike. A
//! [`World`](world::World) takes steps on the volume and on the model and compares each result; after a crash
//! the volume must equal one of the states of the model from the last durable one on ([`past`]).
#![forbid(unsafe_code)]

pub mod at;
pub mod client;
pub mod compare;
pub mod draw;
pub mod drive;
pub mod engine;
pub mod failure;
pub mod history;
mod judge;
pub mod kernel;
mod listing;
mod lives;
pub mod model;
mod nodes;
pub mod op;
mod operate;
mod other_syncs;
pub mod past;
mod perform;
pub mod platform;
pub mod reached;
mod repairs;
pub mod runs;
pub mod setup;
pub mod step;
pub mod swarm;
pub mod tree;
mod troubles;
pub mod world;
