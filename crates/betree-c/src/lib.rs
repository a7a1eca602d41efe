//! The embedded store for C. `include/betree.h` is made from this crate, and its head says what holds for all
//! functions: results, arguments, memory, threads.
//!
//! It is the only crate of the store with `unsafe`. Each function takes its arguments through [`args`], which
//! refuses what can be refused, and runs in [`status::call`], which no panic leaves.

// What a caller must keep to is the same for all functions, and stands in the header's head.
#![allow(clippy::missing_safety_doc)]
// Constants of C have one namespace.
#![allow(clippy::enum_variant_names)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod args;
mod backup;
mod batch;
mod conflict;
mod dict;
mod expiry;
mod iter;
mod merge;
mod names;
mod results;
mod status;
mod store;
mod transaction;
mod view;

#[cfg(test)]
mod tests;
