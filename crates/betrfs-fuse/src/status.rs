//! The status of a live mount.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use betree::State;
use betrfs::{OpCount, OpKind, Volume};
use serde::{Deserialize, Serialize, Serializer};

use crate::check_report::ScrubStatus;
use crate::control::{Line, Unheard};
use crate::counters::{Counters, DataBytes, RequestCount};
use crate::error_status::ErrorStatus;
use crate::freeze::Frozen;
use crate::latency::Latency;
use crate::layout::Room;
use crate::mount_info::MountEntry;
use crate::mount_settings::MountSettings;

/// The identity of a mount. Bytes of paths that are not UTF-8 become replacement characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The server's process.
    pub pid: i32,
    /// The volume's file or block device.
    #[serde(serialize_with = "lossy")]
    pub volume: PathBuf,
    /// Where it is mounted.
    #[serde(serialize_with = "lossy")]
    pub mount_point: PathBuf,
}

fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The cost of operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCount {
    /// Calls.
    pub calls: u64,
    /// Point queries to the tree.
    pub queries: u64,
    /// Range queries to the tree.
    pub scans: u64,
    /// Batches committed.
    pub commits: u64,
}

/// Whether a volume takes changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// `writable`, `frozen` (changes wait for the thaw), `device-full` (the disk under the volume's file is
    /// full: changes resume when it has room) or `read-only` (no changes until the next mount).
    pub is: String,
    /// The cause, if not writable.
    pub why: Option<String>,
    /// Time of the cause, in seconds since 1970-01-01 00:00 UTC.
    pub since: Option<i64>,
}

impl From<State> for VolumeState {
    fn from(state: State) -> VolumeState {
        let (is, trouble) = match state {
            State::Writable => ("writable", None),
            State::DeviceFull(trouble) => ("device-full", Some(trouble)),
            State::ReadOnly(trouble) => ("read-only", Some(trouble)),
        };
        let since = trouble.as_ref().map(|trouble| trouble.since_ns / 1_000_000_000);
        VolumeState { is: is.to_owned(), why: trouble.map(|trouble| trouble.why), since }
    }
}

impl From<Frozen> for VolumeState {
    fn from(Frozen { since, left, waiting }: Frozen) -> VolumeState {
        let limit = left.map_or_else(
            || "until `betrfs thaw`".to_owned(),
            |left| format!("until `betrfs thaw`, for {} s more at most", left.as_secs()),
        );
        let why = format!("by `betrfs freeze`, {limit}; {waiting} changes wait");
        VolumeState { is: "frozen".to_owned(), why: Some(why), since: Some(since) }
    }
}

/// The status of a live mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The mount.
    #[serde(flatten)]
    pub identity: Identity,
    /// The volume's label; empty if it has none.
    pub label: String,
    /// The volume's UUID.
    pub uuid: String,
    /// The transport: `io_uring` or `device`.
    pub transport: String,
    /// The address where its metrics are served by HTTP, if they are.
    #[serde(default)]
    pub metrics: Option<String>,
    /// The settings of the mount; `None` of a server of an earlier version.
    #[serde(default)]
    pub settings: Option<MountSettings>,
    /// Seconds since the mount.
    pub uptime_seconds: u64,
    /// Whether the volume takes changes.
    pub state: VolumeState,
    /// The number of copies that its interior nodes above the parents of leaves are to have; `None` of a
    /// server of an earlier version.
    #[serde(default)]
    pub metadata_copies: Option<u32>,
    /// The last scrub of the volume; `None` if there was none.
    #[serde(default)]
    pub last_scrub: Option<ScrubStatus>,
    /// The errors that are counted on the volume; none of a server of an earlier version.
    #[serde(default)]
    pub errors: ErrorStatus,
    /// The room on the volume; all 0 of a server of an earlier version.
    #[serde(default)]
    pub room: Room,
    /// Kernel requests by kind.
    pub requests: BTreeMap<String, RequestCount>,
    /// The times of requests by kind; none of a server of an earlier version.
    #[serde(default)]
    pub latencies: BTreeMap<String, Latency>,
    /// The bytes that requests carried; all 0 of a server of an earlier version.
    #[serde(default)]
    pub data: DataBytes,
    /// The cost of operations in the tree, by kind.
    pub operations: BTreeMap<String, OperationCount>,
    /// The engine's counters, by name.
    pub engine: BTreeMap<String, u64>,
}

impl Status {
    pub(crate) fn of(
        identity: &Identity,
        transport: &str,
        volume: &Volume,
        counters: &Counters,
        uptime: Duration,
    ) -> Status {
        let betree::Identity { label, uuid, .. } = volume.env().identity();
        Status {
            identity: identity.clone(),
            label,
            uuid: uuid.to_string(),
            transport: transport.to_owned(),
            metrics: None,
            settings: None,
            uptime_seconds: uptime.as_secs(),
            state: volume.env().state().into(),
            metadata_copies: Some(volume.env().node_copies().count()),
            last_scrub: volume.env().last_scrub().map(ScrubStatus::from),
            errors: volume.env().errors().into(),
            room: Room::of(volume),
            requests: counters.snapshot(),
            latencies: counters.latencies(),
            data: counters.data(),
            operations: operations(volume),
            engine: engine_counters(volume),
        }
    }

    /// Asks the server of a mount.
    ///
    /// # Errors
    /// [`Unheard`], after [`ANSWER_TIME_MAX`](crate::ANSWER_TIME_MAX) at the latest.
    pub fn ask(mount: &MountEntry) -> Result<Status, Unheard> {
        let answer = Line::open(mount)?.status()?;
        serde_json::from_slice(&answer).map_err(|error| Unheard::Io(error.into()))
    }
}

fn operations(volume: &Volume) -> BTreeMap<String, OperationCount> {
    let counters = volume.counters();
    let counts = OpKind::ALL.iter().map(|kind| {
        let OpCount { calls, queries, scans, commits, .. } = counters.of(*kind);
        (kind.name().to_owned(), OperationCount { calls, queries, scans, commits })
    });
    counts.filter(|(_, count)| *count != OperationCount::default()).collect()
}

fn engine_counters(volume: &Volume) -> BTreeMap<String, u64> {
    volume.env().stats().iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn any_path_can_be_serialized() {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let identity = Identity { pid: 1, volume: path(b"/v\xff"), mount_point: path(b"/m\xfe") };
        let told: Identity = serde_json::from_slice(&serde_json::to_vec(&identity).unwrap()).unwrap();
        assert_eq!(told.volume, Path::new("/v\u{fffd}"));
        assert_eq!(told.mount_point, Path::new("/m\u{fffd}"));
        assert_eq!(told.pid, identity.pid);
    }
}
