//! The ground of the engine's tests: disks in memory that lose, tear and fail ([`MemDevice`], [`SimDisk`]),
//! the literal model of an environment ([`ModelEnv`], [`History`]), and histories from seeds, which run
//! beside the model ([`Runner`]) and are shrunk when they fail ([`harness`]); and transactions side by side
//! ([`interleaving`]), of which is told whether they were isolated ([`isolation`]).
#![forbid(unsafe_code)]

mod append_capped;
mod blocks;
pub mod canary;
mod compare;
mod copied_nodes;
mod crash;
mod damage;
mod examine;
mod expiry;
mod failure;
pub mod harness;
mod history;
pub mod interleaving;
pub mod isolation;
mod laws;
mod live_rot;
mod lost_nodes;
mod lost_superblocks;
mod mem_device;
mod mix;
mod model;
mod on_sync;
mod rotting_disk;
mod runner;
mod shrink;
mod sim_disk;
mod step;
mod transactions;
mod universe;

pub use append_capped::AppendCapped;
pub use copied_nodes::{CopiesReached, copied_nodes_history};
pub use crash::{CrashHistory, first_violation};
pub use damage::{DamageReached, damage_history};
pub use examine::{problems, settled_bytes};
pub use expiry::SimClock;
pub use failure::Failure;
pub use history::History;
pub use laws::{try_laws, try_laws_with};
pub use live_rot::{RotAct, RotKind, RotReached, rot_history, rot_history_of_seed};
pub use lost_nodes::{LostNodesReached, lost_nodes_history};
pub use lost_superblocks::lost_superblocks_history;
pub use mem_device::{Counts, EIO, ENOSPC, Fault, MemDevice};
pub use mix::Mix;
pub use model::{Edit, Map, ModelEnv, batch_of};
pub use on_sync::OnSync;
pub use rotting_disk::{Rot, RottingDisk};
pub use runner::{Runner, format_env, open_env};
pub use seeded::Rng;
pub use shrink::{shrink, shrink_steps};
pub use sim_disk::SimDisk;
pub use step::{Compaction, Generator, Ingest, Move, SMALL_NODES, Setup, Step, history_of_seed};
pub use transactions::{InTransaction, ModelTransaction};
pub use universe::Universe;
