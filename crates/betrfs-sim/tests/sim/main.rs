//! The laws of the library and of the protocol, tried by seeded histories: one program, a module for each.

#[cfg(feature = "planted-bugs")]
#[macro_use]
mod canaries;
mod hostile_requests;
#[cfg(feature = "planted-bugs")]
mod protocol_canaries;
mod protocol_histories;
mod recorded_seeds;
#[cfg(feature = "planted-bugs")]
mod volume_canaries;
mod volume_faults;
mod volume_histories;
mod volume_repairs;
