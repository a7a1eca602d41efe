//! Who asks a server, and who may ask for what.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

use super::server::Served;
use super::{
    BACKUP, CHECK, CLOSING, FAREWELL, FREEZE, LAYOUT, MAP, ORDER, PING, QUOTA, SCRUB, STATUS, THAW, UNMOUNT,
};

/// Who may make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requires {
    /// Any user, on a mount that any user may have removed; else root and the server's user.
    AnyUser,
    /// Root and the server's user.
    Owner,
    /// Root with `CAP_SYS_ADMIN`, and another user who is the server's.
    Administration,
}

/// What each request requires, by its beginning.
const REQUESTS: [(&str, Requires); 14] = [
    (PING, Requires::AnyUser),
    (FAREWELL, Requires::AnyUser),
    (UNMOUNT, Requires::AnyUser),
    (STATUS, Requires::Owner),
    (CLOSING, Requires::Owner),
    // These read what the caller may not be allowed to read, or keep the disk busy.
    (CHECK, Requires::Administration),
    (SCRUB, Requires::Administration),
    (BACKUP, Requires::Administration),
    (LAYOUT, Requires::Administration),
    (MAP, Requires::Administration),
    // These change something.
    (ORDER, Requires::Administration),
    (QUOTA, Requires::Administration),
    (FREEZE, Requires::Administration),
    (THAW, Requires::Administration),
];

/// What a request requires; `None` for one that is not known.
pub(super) fn requires(request: &str) -> Option<Requires> {
    REQUESTS.iter().find(|(begin, _)| request.starts_with(begin)).map(|(_, requires)| *requires)
}

/// The process that has made a connection.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    uid: u32,
    pid: Option<Pid>,
    /// When the connection was accepted, in hundredths of a second since the start of the system.
    accepted: u64,
}

impl Peer {
    /// That of a connection which was just accepted.
    ///
    /// # Errors
    /// The operating system's.
    pub fn of(stream: &UnixStream) -> io::Result<Peer> {
        let peer = socket_peercred(stream)?;
        let pid = Pid::from_raw(peer.pid.as_raw_pid());
        let accepted = now().ok_or(io::ErrorKind::Unsupported)?;
        Ok(Peer { uid: peer.uid.as_raw(), pid, accepted })
    }

    /// The same, as if the connection had been accepted at another time.
    #[cfg(test)]
    pub fn accepted_at(self, accepted: u64) -> Peer {
        Peer { accepted, ..self }
    }

    /// Its user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether it is root or the server's user.
    pub fn is_owner(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Whether it may make a request with these requirements.
    pub fn may(&self, requires: Requires, served: &dyn Served) -> bool {
        match requires {
            Requires::AnyUser => served.is_removed_for_all() || self.is_owner(),
            Requires::Owner => self.is_owner(),
            Requires::Administration => self.is_owner() && (self.uid != 0 || self.has_capability(served)),
        }
    }

    /// Whether the process has the capability for administration. One that has its number by now and was
    /// started later is another.
    fn has_capability(&self, served: &dyn Served) -> bool {
        let Some(pid) = self.pid else { return false };
        let number = pid.as_raw_nonzero().get().cast_unsigned();
        let is_same = || started(number).is_some_and(|started| started <= self.accepted);
        served.is_administrator(number) && is_same()
    }
}

/// The time, in hundredths of a second since the start of the system.
fn now() -> Option<u64> {
    let told = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = told.split_whitespace().next()?.split_once('.')?;
    let (seconds, hundredths): (u64, u64) = (seconds.parse().ok()?, hundredths.parse().ok()?);
    seconds.checked_mul(100)?.checked_add(hundredths)
}

/// When a process was started, in the same unit.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have any characters. The state follows, the third of all.
    let (_, behind_name) = stat.rsplit_once(')')?;
    let ticks: u64 = behind_name.split_whitespace().nth(19)?.parse().ok()?;
    ticks.checked_mul(100)?.checked_div(rustix::param::clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_requirement_and_no_other_has() {
        assert_eq!(requires("order {}\n"), Some(Requires::Administration));
        assert_eq!(requires(PING), Some(Requires::AnyUser));
        for unknown in ["", "pin", "orders", "statu\n"] {
            assert_eq!(requires(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_process_that_was_started_after_the_connection_is_another() {
        let now = now().unwrap();
        let own = rustix::process::getpid();
        let number = own.as_raw_nonzero().get().cast_unsigned();
        assert!(started(number).is_some_and(|started| started <= now));
        assert_eq!(started(0), None);
    }
}
