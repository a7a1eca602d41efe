//! `quota` on the control socket, with JSON: what is below a directory is counted, and gets limits.
//!
//! It is answered as `check` is, with the number of records that were counted for what is done. A client that
//! is gone ends the count, and nothing is set.

use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use betrfs::QuotaLimits;
use serde::{Deserialize, Serialize};

use super::QUOTA;
use super::check::{CheckError, Telling, hear, in_thread};
use super::client::{Line, Unheard};
use super::server::Served;
use super::turn::Turn;
use crate::mount_info::MountEntry;

/// Several may be counted at once: no client ever hears it.
const BUSY: &str = "another command sets this quota";

/// Limits for a directory.
#[derive(Serialize, Deserialize)]
struct Request {
    /// The directory's token as a source of copies.
    token: u64,
    bytes: Option<u64>,
    objects: Option<u64>,
}

/// Answers a client in a thread of its own.
pub(super) fn answer(stream: UnixStream, request: &str, served: &Arc<dyn Served>) -> io::Result<()> {
    let Request { token, bytes, objects } = serde_json::from_str(request)?;
    let served = Arc::clone(served);
    in_thread(stream, &Turn::default(), BUSY, "betrfs-quota", move |stream, _taken| {
        let mut telling = Telling::new(stream);
        let set =
            served.set_quota(token, QuotaLimits { bytes, objects }, &mut |counted| match served.is_over() {
                true => ControlFlow::Break(()),
                false => telling.tell(counted, 0),
            });
        telling.report(set)
    })
}

impl Line {
    /// Has the server give a directory a quota, or its quota these limits. The token is that of
    /// [`quota_token`](crate::quota_token). Calls `progress` with the number of records that were counted.
    ///
    /// # Errors
    /// [`CheckError`]; nothing has changed then.
    pub fn set_quota(
        mut self,
        mount: &MountEntry,
        token: u64,
        limits: QuotaLimits,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), CheckError> {
        let QuotaLimits { bytes, objects } = limits;
        let text = serde_json::to_string(&Request { token, bytes, objects });
        self.ask(&format!("{QUOTA}{}\n", text.map_err(|error| Unheard::Io(error.into()))?))?;
        hear(self.patient(mount), &mut |counted, _| progress(counted))
    }
}
