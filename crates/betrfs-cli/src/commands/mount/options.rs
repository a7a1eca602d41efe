//! The value of `-o`, as mount(8) and /etc/fstab have it.

use std::str::FromStr;

use betrfs_fuse::mount_point::MountFlags;

use crate::size;

/// What `-o` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// As it was given.
    pub text: String,
    /// mount(2)'s flags.
    pub flags: MountFlags,
    /// `cache_size=`
    pub cache_bytes: Option<u64>,
}

impl FromStr for Options {
    type Err = String;

    fn from_str(text: &str) -> Result<Options, String> {
        let mut options = Options { text: text.to_owned(), flags: MountFlags::empty(), cache_bytes: None };
        for option in text.split(',').filter(|option| !option.is_empty()) {
            if let Some(bytes) = option.strip_prefix("cache_size=") {
                options.cache_bytes = Some(size::parse_positive(bytes)?);
            } else if let Some(flag) = flag(option) {
                options.flags |= flag;
            } else {
                options.flags -=
                    unflag(option).ok_or_else(|| format!("the mount option `{option}` is not known"))?;
            }
        }
        Ok(options)
    }
}

fn flag(option: &str) -> Option<MountFlags> {
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
        _ => return None,
    })
}

/// What takes a flag back, and what is not for the file system but for those who read /etc/fstab.
fn unflag(option: &str) -> Option<MountFlags> {
    Some(match option {
        "rw" => MountFlags::RDONLY,
        "suid" => MountFlags::NOSUID,
        "dev" => MountFlags::NODEV,
        "exec" => MountFlags::NOEXEC,
        "atime" => MountFlags::NOATIME,
        "async" => MountFlags::SYNCHRONOUS,
        "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" => MountFlags::empty(),
        _ if option.starts_with("x-") => MountFlags::empty(),
        _ => return None,
    })
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
    fn an_option_that_is_not_known_is_refused() {
        assert!("ro,compress=zstd".parse::<Options>().unwrap_err().contains("compress=zstd"));
        assert!("cache_size=lots".parse::<Options>().is_err());
    }
}
