//! The mount: turns kernel requests into calls of the library [`betrfs`].
//!
//! - [`Server`] is the file-system side: one method for each request, independent of the transport;
//! - [`wire`] has the bytes of the kernel's protocol, [`protocol`] decodes requests and encodes replies,
//!   `transport` carries them;
//! - [`mount_point`] handles the directory: checks, mount(2), umount(2);
//! - [`Control`] is the socket on which a server answers commands, and reports how its volume was closed;
//! - [`Mount`] puts them together: opens the volume, mounts it, serves it, closes it.
#![deny(unsafe_code)] // A few modules need it, and say why.

mod check_report;
mod closing;
mod control;
mod counters;
mod errno;
mod error_status;
mod file_map;
mod freeze;
mod inherited;
mod ioctl;
mod latency;
mod layout;
mod loop_device;
mod low_priority;
mod metrics_page;
mod metrics_server;
mod mount;
mod mount_info;
pub mod mount_point;
mod mount_settings;
mod mounts_below;
mod open_device;
pub mod planted;
pub mod protocol;
mod sched_idle;
mod server;
mod shell_word;
mod status;
mod transport;
pub mod wire;

pub use check_report::{CheckProblem, CheckReport, ScrubReport, ScrubStatus};
pub use closing::{CloseState, Closing};
pub use control::{
    ANSWER_TIME_MAX, BackupError, BackupPart, CheckError, Control, Farewell, Line, MAP_BYTES_MAX, NewSize,
    NotFrozen, NotUnmounted, Order, ScrubRequest, Served, Unheard,
};
pub use counters::{Counters, DataBytes, RequestCount};
pub use errno::{Errno, errno, is_damage, is_truncated};
pub use error_status::{CountedErrors, ErrorStatus, WasReadOnly};
pub use file_map::{DeviceRange, MapExtent, MapRun};
pub use freeze::{BEGIN_TIME_MAX, End, FreezeError, Step};
pub use inherited::hand_down_standard_descriptors_only;
pub use ioctl::{
    Quotas, RemoveTreeError, Restoration, RestoreError, approach, checkpoint, clear_quota, clone, foreign,
    map_token, open_snapshots, properties, quota, quota_token, recompress, recompress_permit, remove_tree,
    set_properties, sync, usage, write_back,
};
pub use latency::Latency;
pub use layout::{Content, Layout, Room};
pub use metrics_page::metrics_page;
pub use mount::{Mount, MountError, MountOptions};
pub use mount_info::{FS_TYPES, MountEntry};
pub use mount_settings::{ChangeableSettings, FixedSettings, MountSettings, ReadsNoted};
pub use open_device::{open_device, open_device_for_reading};
pub use protocol::abort_on_stray_panics;
pub use server::{Acls, Answer, Caller, Server, Tasks, UserClones};
pub use shell_word::shell_word;
pub use status::{Identity, OperationCount, Status, VolumeState};
pub use transport::Transport;
pub use wire::Opcode;
