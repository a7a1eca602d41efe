//! The library as a whole, one topic a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod attributes;
mod bounds;
mod clones;
mod contents;
mod costs;
mod damage;
mod device_costs;
mod full;
mod histories;
mod hostile;
mod kept;
mod links;
mod listings;
mod model;
mod moments;
mod renames;
mod smashed;
mod snapshots;
mod sparse;
mod support;
mod threads;
mod unlinked;
mod versions;
