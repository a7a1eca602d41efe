//! The value of `-o`, in the form of mount(8) and /etc/fstab.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use betrfs_fuse::mount_point::MountFlags;
use betrfs_fuse::{Acls, UserClones};

use crate::size;

/// The options given with `-o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The text as given.
    pub text: String,
    /// mount(2)'s flags.
    pub flags: MountFlags,
    /// `cache_size=`
    pub cache_bytes: Option<u64>,
    /// `acl` and `noacl`.
    pub acls: Option<Acls>,
    /// `user_clone_allowed`.
    pub user_clones: Option<UserClones>,
    /// `discard`: free blocks are discarded after each checkpoint.
    pub discard: Option<bool>,
    /// `users`: any user may unmount it.
    pub users_unmount: bool,
    /// `metrics=`
    pub metrics: Option<SocketAddr>,
    /// `remount`: change the options of an existing mount.
    pub remount: bool,
    /// `nofail`: a volume that is not there is no failure.
    pub no_fail: bool,
    /// Unknown options.
    pub unknown: Vec<String>,
}

impl Options {
    /// Joins several values, in order.
    ///
    /// # Errors
    /// A sentence that names the wrong value.
    pub fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        texts.into_iter().collect::<Vec<_>>().join(",").parse()
    }
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Options, String> {
        let mut options = Options {
            text: text.to_owned(),
            flags: MountFlags::empty(),
            cache_bytes: None,
            acls: None,
            user_clones: None,
            discard: None,
            users_unmount: false,
            metrics: None,
            remount: false,
            no_fail: false,
            unknown: Vec::new(),
        };
        for option in text.split(',').filter(|option| !option.is_empty()) {
            if let Some(bytes) = option.strip_prefix("cache_size=") {
                options.cache_bytes = Some(size::parse_positive(bytes)?);
            } else if let Some(address) = option.strip_prefix("metrics=") {
                options.metrics = Some(parse_metrics(address)?);
            } else if option == "discard" || option == "nodiscard" {
                options.discard = Some(option == "discard");
            } else if option == "user_clone_allowed" {
                options.user_clones = Some(UserClones::Allowed);
            } else if option == "nouser_clone_allowed" {
                options.user_clones = Some(UserClones::Refused);
            } else if option == "remount" {
                options.remount = true;
            } else if option == "nofail" {
                options.no_fail = true;
            } else if let Some(acls) = acls(option) {
                options.acls = Some(acls);
            } else if let Some(flags) = flags(option) {
                if ACCESS_TIMES.contains(flags) {
                    options.flags -= ACCESS_TIMES;
                }
                options.flags |= flags;
                options.users_unmount |= option == "users";
            } else if let Some(flags) = cleared(option) {
                options.flags -= flags;
            } else if option == "nousers" {
                options.users_unmount = false;
            } else if !is_passed_over(option) {
                options.unknown.push(option.to_owned());
            }
        }
        Ok(options)
    }
}

/// Parses where to serve metrics: a port of 127.0.0.1, or an address with its port.
///
/// # Errors
/// A sentence with the forms.
pub fn parse_metrics(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| {
        format!("`{text}` is no address for metrics: write a port, or an address with it, as in 9469, 127.0.0.1:9469, [::1]:9469")
    })
}

fn acls(option: &str) -> Option<Acls> {
    match option {
        "acl" => Some(Acls::Judge),
        "noacl" => Some(Acls::Ignored),
        _ => None,
    }
}

/// The flags that an option sets.
fn flags(option: &str) -> Option<MountFlags> {
    Some(match option {
        "ro" => MountFlags::RDONLY,
        "nosuid" => MountFlags::NOSUID,
        "nodev" => MountFlags::NODEV,
        "noexec" => MountFlags::NOEXEC,
        "noatime" => MountFlags::NOATIME,
        "nodiratime" => MountFlags::NODIRATIME,
        "relatime" => MountFlags::RELATIME,
        "strictatime" => MountFlags::STRICTATIME,
        "sync" => MountFlags::SYNCHRONOUS,
        "dirsync" => MountFlags::DIRSYNC,
        "nosymfollow" => NO_SYMLINKS,
        // They let users mount, by mount(8), and imply these flags.
        "user" | "users" => MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        "owner" | "group" => MountFlags::NOSUID | MountFlags::NODEV,
        _ => return None,
    })
}

/// The flags of which the last one counts.
pub const ACCESS_TIMES: MountFlags =
    MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);

/// MS_NOSYMFOLLOW
const NO_SYMLINKS: MountFlags = MountFlags::from_bits_retain(256);

/// The flags that an option clears.
fn cleared(option: &str) -> Option<MountFlags> {
    Some(match option {
        "rw" => MountFlags::RDONLY,
        "suid" => MountFlags::NOSUID,
        "dev" => MountFlags::NODEV,
        "exec" => MountFlags::NOEXEC,
        "atime" => MountFlags::NOATIME,
        "diratime" => MountFlags::NODIRATIME,
        "norelatime" => MountFlags::RELATIME,
        "nostrictatime" => MountFlags::STRICTATIME,
        "async" => MountFlags::SYNCHRONOUS,
        "symfollow" => NO_SYMLINKS,
        _ => return None,
    })
}

/// Options without an effect here: options for readers of /etc/fstab; requests for things that are done
/// anyway or do not apply; and options that /proc/self/mountinfo shows, which mount(8) passes on a remount.
const PASSED_OVER: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "_netdev",
    "nouser",
    "noowner",
    "nogroup",
    "loop",
    // Access times are always written lazily, with other changes.
    "lazytime",
    "nolazytime",
    // The kernel has no inode versions for FUSE.
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "silent",
    "loud",
    "user_xattr",
    // What a failed write does, and what a commit waits for.
    "errors=remount-ro",
    "barrier",
    "default_permissions",
    "allow_other",
];

/// As [`PASSED_OVER`], by prefix: options with a value or a longer name.
const PASSED_OVER_PREFIXES: &[&str] = &[
    "x-",
    "X-",
    "comment=",
    "helper=",
    "uhelper=",
    "user=",
    "user_id=",
    "group_id=",
    "blksize=",
    "max_read=",
    "fd=",
    "rootmode=",
    "fsname=",
    "subtype=",
];

/// The options for the manual, each with its meaning; the others are those for readers of /etc/fstab, and
/// those that do nothing here.
pub const DESCRIBED: &[(&str, &str)] = &[
    (
        "ro, rw",
        "Changes are refused, or taken (the default). With `ro` nothing is written to the volume's file or \
      device, which may be read-only; a log that was not replayed is replayed in memory.",
    ),
    (
        "noatime, relatime, strictatime, nodiratime",
        "Which reads move times of access: none, those after which the \
      time is newer than that of the last change or a day old (the default), all, or none of directories.",
    ),
    (
        "nosuid, nodev, noexec, nosymfollow",
        "Set-id bits, device files, programs and symbolic links on the mount have \
      no effect.",
    ),
    ("sync, dirsync", "Each change, or each change of a directory, is durable when its call returns."),
    (
        "user, users, owner, group",
        "Users may mount it, by mount(8), if they may read and write the volume's file or device; the server is theirs \
      then, and only they and root may unmount it, with `users` anybody, by whomever it was mounted. They imply `nosuid,nodev`, the first two `noexec` too.",
    ),
    (
        "cache_size=SIZE",
        "The memory for the tree's nodes, as in 256M or 2G; by default a quarter of the memory of \
      the machine or the control group, from 64M to 1G.",
    ),
    (
        "acl, noacl",
        "Access control lists, acl(5), decide who may do what (the default), or they are neither shown nor \
      changed, and permission bits alone decide. Lists cost a request for each object that somebody other than its \
      owner opens or searches, once, and one for each path from the root directory.",
    ),
    (
        "user_clone_allowed, nouser_clone_allowed",
        "Users other than root and the one who mounts may clone, take snapshots of and remove (rm-tree) what \
      belongs to them as a whole, or may not (the default). See `betrfs clone --help` for the rule.",
    ),
    (
        "discard, nodiscard",
        "Free space is discarded after each checkpoint, or not (the default: `betrfs trim` does it when you say): \
         punched out of the volume's file, or told to the block device.",
    ),
    (
        "metrics=ADDRESS",
        "Counters and latencies for Prometheus are served by HTTP at this address, path /metrics: a port of 127.0.0.1, \
         or an address with its port, as in 9469 or [::1]:9469. Whoever reaches the address reads them.",
    ),
    (
        "remount",
        "Changes the options above of a mount; one that is not named stays. `cache_size`, `acl`, `discard`, `metrics` and \
      `dirsync` are fixed at the mount, and so is `ro`, in so far as a volume that was mounted with it takes no changes: \
      a remount to another value of theirs is refused. With `mount -i`, which calls no helper, only the kernel's own \
      options change.",
    ),
    ("nofail", "If the volume's file or device does not exist, nothing is mounted, and that is no failure."),
    ("noauto, _netdev, x-*", "For readers of /etc/fstab; without an effect here."),
    (
        "loop, user_xattr, barrier, errors=remount-ro, iversion, default_permissions, allow_other",
        "Accepted, and without an effect: it is so \
      in any case, or does not apply.",
    ),
];

fn is_passed_over(option: &str) -> bool {
    PASSED_OVER.contains(&option) || PASSED_OVER_PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_fstab_are_read_from_left_to_right() {
        let options: Options = "rw,noatime,nosuid,suid,x-systemd.automount,cache_size=64M".parse().unwrap();
        assert_eq!((options.flags, options.cache_bytes), (MountFlags::NOATIME, Some(64 << 20)));
        let options: Options = "".parse().unwrap();
        assert_eq!((options.flags, options.cache_bytes), (MountFlags::empty(), None));
    }

    #[test]
    fn options_of_mount_8_for_all_file_systems_are_accepted() {
        let all = "async,atime,noatime,auto,noauto,defaults,dev,nodev,diratime,nodiratime,dirsync,exec,noexec,group,\
            iversion,noiversion,mand,nomand,_netdev,nofail,relatime,norelatime,strictatime,nostrictatime,lazytime,\
            nolazytime,suid,nosuid,silent,loud,owner,remount,ro,rw,sync,user,nouser,users,X-mount.mkdir,x-systemd.idle,\
            comment=a,errors=remount-ro,acl,noacl,discard,nodiscard,symfollow,nosymfollow,user=ada";
        assert_eq!(all.parse::<Options>().unwrap().unknown, Vec::<String>::new());
        let flags = |text: &str| text.parse::<Options>().unwrap().flags;
        let (nosuid, nodev, noexec) = (MountFlags::NOSUID, MountFlags::NODEV, MountFlags::NOEXEC);
        assert_eq!(flags("users"), nosuid | nodev | noexec);
        let lets_all = |text: &str| text.parse::<Options>().unwrap().users_unmount;
        assert!(
            lets_all("users")
                && lets_all("nousers,rw,users")
                && !lets_all("user")
                && !lets_all("users,nousers")
        );
        assert_eq!(flags("user,exec"), nosuid | nodev);
        assert_eq!(flags("owner"), nosuid | nodev);
        let acls = |text: &str| text.parse::<Options>().unwrap().acls;
        assert_eq!(
            [acls(""), acls("noacl,acl"), acls("acl,noacl")],
            [None, Some(Acls::Judge), Some(Acls::Ignored)]
        );
        assert!("remount,ro".parse::<Options>().unwrap().remount);
        // As in /proc/self/mountinfo.
        let told = "rw,relatime,user_id=0,group_id=0,default_permissions,allow_other,blksize=4096,ro,remount";
        let options = Options::joined([told, "noatime"]).unwrap();
        assert_eq!(options.flags, MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(options.unknown, Vec::<String>::new());
    }

    #[test]
    fn of_options_for_times_of_access_the_last_one_counts() {
        let flags = |text: &str| text.parse::<Options>().unwrap().flags;
        for (text, expected) in [
            ("noatime,relatime", MountFlags::RELATIME),
            ("strictatime,noatime", MountFlags::NOATIME),
            ("relatime,nodiratime,strictatime", MountFlags::STRICTATIME | MountFlags::NODIRATIME),
            ("noatime,atime", MountFlags::empty()),
        ] {
            assert_eq!(flags(text), expected, "{text}");
        }
    }

    #[test]
    fn the_manual_describes_options_that_exist_and_each_with_a_flag() {
        let described: Vec<&str> = DESCRIBED.iter().flat_map(|(names, _)| names.split(", ")).collect();
        for name in &described {
            let given =
                name.replace("SIZE", "64M").replace("ADDRESS", "9469").replace("x-*", "x-systemd.automount");
            assert_eq!(given.parse::<Options>().unwrap().unknown, Vec::<String>::new(), "{name}");
        }
        let mut help =
            Vec::from(["ro", "noatime", "nosuid", "nodev", "noexec", "noacl", "remount", "cache_size=SIZE"]);
        help.extend([
            "strictatime",
            "relatime",
            "sync",
            "dirsync",
            "nosymfollow",
            "user",
            "owner",
            "nodiratime",
        ]);
        help.iter().for_each(|name| assert!(described.contains(name), "{name}"));
    }

    #[test]
    fn metrics_are_on_loopback_unless_an_address_is_written_out() {
        for (text, address) in [
            ("9469", "127.0.0.1:9469"),
            ("127.0.0.1:9469", "127.0.0.1:9469"),
            ("[::1]:9469", "[::1]:9469"),
            ("0.0.0.0:9469", "0.0.0.0:9469"),
        ] {
            assert_eq!(parse_metrics(text), Ok(address.parse().unwrap()), "{text}");
        }
        for wrong in ["", ":9469", "*:9469", "70000", "localhost:9469", "127.0.0.1", "::1", "-1", "0.0.0.0"] {
            assert!(parse_metrics(wrong).unwrap_err().contains("[::1]:9469"), "{wrong}");
        }
        let options: Options = "ro,metrics=9470".parse().unwrap();
        assert_eq!(options.metrics, Some("127.0.0.1:9470".parse().unwrap()));
        assert!("metrics=".parse::<Options>().is_err());
    }

    #[test]
    fn the_last_word_on_discards_counts() {
        let discard = |text: &str| text.parse::<Options>().unwrap().discard;
        assert_eq!([discard("discard"), discard("nodiscard,ro,discard")], [Some(true); 2]);
        assert_eq!([discard("ro"), discard("discard,nodiscard")], [None, Some(false)]);
    }

    #[test]
    fn users_may_clone_only_if_the_last_word_says_so() {
        let clones = |text: &str| text.parse::<Options>().unwrap().user_clones;
        assert_eq!(clones("ro"), None);
        assert_eq!(clones("nouser_clone_allowed,user_clone_allowed"), Some(UserClones::Allowed));
        assert_eq!(clones("user_clone_allowed,nouser_clone_allowed"), Some(UserClones::Refused));
    }

    #[test]
    fn an_unknown_option_is_named() {
        // Also what would be a wrong promise if it were passed over.
        for option in ["compress=zstd", "errors=continue", "errors=panic", "nouser_xattr", "nobarrier"] {
            assert_eq!(format!("ro,{option}").parse::<Options>().unwrap().unknown, [option]);
        }
        assert!("cache_size=lots".parse::<Options>().is_err());
    }
}
