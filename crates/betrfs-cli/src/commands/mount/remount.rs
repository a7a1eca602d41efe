//! `-o remount`: changes the options of a mount, or refuses to, with the name of the option that is fixed.
//!
//! mount(8) hands over all options that the mount is to have: those that it knows from /etc/fstab or from the
//! kernel, as those of its command line change them. So an option with the value that the mount has is no
//! change, and a flag of the kernel that is not handed over goes. Who calls the command names changes alone.

use std::net::SocketAddr;

use betrfs_fuse::mount_point::MountFlags;
use betrfs_fuse::{
    Acls, ChangeableSettings, FixedSettings, MountEntry, MountSettings, Order, ReadsNoted, Status, UserClones,
};

use super::Arguments;
use super::options::{ACCESS_TIMES, Options};
use crate::commands::{change, stats};
use crate::failure::{Failure, Kind, Outcome};
use crate::helper;
use crate::path::absolute;
use crate::size;

/// The flags of which the server has to hear.
const OF_THE_SERVER: MountFlags = ACCESS_TIMES.union(MountFlags::RDONLY).union(MountFlags::NODIRATIME);

/// Remounts what is mounted on the directory; options that are not named stay.
pub fn run(arguments: &Arguments, given: &Options) -> Outcome {
    refuse_flags_of_a_mount(arguments)?;
    if arguments.helper.fake {
        return Ok(());
    }
    let dir = absolute(&arguments.dir)?;
    let found = stats::found_at(&dir)?;
    let mount = found.entry();
    let now = flags_now(mount)?;
    let kept: Vec<&str> = match helper::is_of_mount() && is_whole(&given.text) {
        // The only one that the kernel does not show, so that mount(8) does not know of it.
        true => names_of(mount).filter(|name| *name == STRICT).collect(),
        false => names_of(mount).collect(),
    };
    let texts = kept.into_iter().chain([given.text.as_str()]);
    let mut flags = Options::joined(texts).map_err(Failure::new)?.flags;
    if !flags.intersects(MountFlags::NOATIME | MountFlags::STRICTATIME) {
        // Without a word the kernel would leave times of access as they are.
        flags |= MountFlags::RELATIME;
    }
    if (flags - now).contains(MountFlags::DIRSYNC) {
        return Err(fixed("dirsync", "the kernel changes it for no file system"));
    }
    let wanted = Wanted {
        cache_bytes: given.cache_bytes.or(arguments.cache_size),
        metrics: given.metrics.or(arguments.metrics),
        given,
        flags,
    };
    // The kernel may have been told without the server, by `mount -i`.
    let order = match Status::ask(mount) {
        Ok(status) if status.settings.is_some() || wanted.concerns_server(now) => wanted.order(&status)?,
        Err(why) if wanted.concerns_server(now) => return Err(stats::unheard(&dir, &why)),
        _ => None,
    };
    found.remount(flags)?;
    match order {
        Some(settings) => change::by_server(mount, &Order::Settings(settings)).map(drop),
        None => Ok(()),
    }
}

/// Refuses what says how a volume is opened, made or served, which a remount does not do.
fn refuse_flags_of_a_mount(arguments: &Arguments) -> Outcome {
    let given = [
        ("--create", arguments.create.is_some()),
        ("--foreground", arguments.foreground),
        ("--log", arguments.log.is_some()),
        ("--accept-log-loss", arguments.accept_log_loss),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::of(Kind::Usage, format!("a remount has no use for {name}"))),
        None => Ok(()),
    }
}

const STRICT: &str = "strictatime";

/// Whether mount(8) has handed these options over: its first word says whether the mount is to be read-only.
fn is_whole(text: &str) -> bool {
    matches!(text.split(',').next(), Some("ro" | "rw"))
}

/// The options of a mount as the kernel shows them; `strictatime` it shows by neither of the others.
fn names_of(mount: &MountEntry) -> impl Iterator<Item = &str> {
    let is_strict = !mount.options.iter().any(|option| option == "noatime" || option == "relatime");
    let read_only = if mount.is_read_only() { "ro" } else { "rw" };
    let strict = is_strict.then_some(STRICT);
    mount.options.iter().map(String::as_str).chain([read_only]).chain(strict)
}

fn flags_now(mount: &MountEntry) -> Result<MountFlags, Failure> {
    Ok(Options::joined(names_of(mount)).map_err(Failure::new)?.flags)
}

/// What a remount wants.
struct Wanted<'a> {
    given: &'a Options,
    cache_bytes: Option<u64>,
    metrics: Option<SocketAddr>,
    /// All flags of the mount as they are to be.
    flags: MountFlags,
}

impl Wanted<'_> {
    /// Whether the server has a say, or something to hear. What is the kernel's alone goes without an answer
    /// of the server.
    fn concerns_server(&self, now: MountFlags) -> bool {
        let Options { acls, user_clones, discard, .. } = self.given;
        let is_given = acls.is_some()
            || user_clones.is_some()
            || discard.is_some()
            || self.cache_bytes.is_some()
            || self.metrics.is_some();
        is_given || (self.flags ^ now).intersects(OF_THE_SERVER)
    }

    /// What the server is to change, if anything.
    ///
    /// # Errors
    /// The option that is fixed.
    fn order(&self, status: &Status) -> Result<Option<ChangeableSettings>, Failure> {
        let Some(MountSettings { fixed: settings, changeable: now }) = status.settings else {
            return Err(Failure::new(
                "the server of this mount is of an earlier version, which does not tell its options: unmount the \
                 volume, and mount it anew",
            ));
        };
        self.refuse_fixed(settings, status.metrics.as_deref())?;
        let wanted = ChangeableSettings {
            access_times: ReadsNoted::of(self.flags),
            listings_count: !self.flags.contains(MountFlags::NODIRATIME),
            user_clone_allowed: self
                .given
                .user_clones
                .map_or(now.user_clone_allowed, |clones| clones == UserClones::Allowed),
        };
        Ok((wanted != now).then_some(wanted))
    }

    fn refuse_fixed(&self, settings: FixedSettings, metrics: Option<&str>) -> Outcome {
        let FixedSettings { read_only, acl, discard, cache_bytes } = settings;
        if read_only && !self.flags.contains(MountFlags::RDONLY) {
            return Err(fixed("rw", "the volume was opened for reading, with `ro`"));
        }
        if let Some(acls) = self.given.acls.filter(|acls| (*acls == Acls::Judge) != acl) {
            let name = if acls == Acls::Judge { "acl" } else { "noacl" };
            return Err(fixed(name, "the kernel asks for it once, at the mount"));
        }
        if let Some(wanted) = self.given.discard.filter(|wanted| *wanted != discard) {
            let name = if wanted { "discard" } else { "nodiscard" };
            return Err(fixed(name, "the server notes from the mount on what becomes free, or never"));
        }
        if self.cache_bytes.is_some_and(|wanted| wanted != cache_bytes) {
            return Err(fixed("cache_size", &format!("the cache has {}", size::show(cache_bytes))));
        }
        let is_other =
            |wanted: SocketAddr| match metrics.and_then(|metrics| metrics.parse::<SocketAddr>().ok()) {
                // Port 0 is any free one.
                Some(now) => wanted.ip() != now.ip() || wanted.port() != 0 && wanted.port() != now.port(),
                None => true,
            };
        if self.metrics.is_some_and(is_other) {
            let now =
                metrics.map_or_else(|| "none are served".to_owned(), |now| format!("they are on {now}"));
            return Err(fixed("metrics", &now));
        }
        Ok(())
    }
}

/// The failure for an option that no remount changes.
fn fixed(name: &str, why: &str) -> Failure {
    Failure::new(format!(
        "a remount cannot change `{name}`: {why}; nothing was changed. Unmount the volume, and mount it anew"
    ))
}
