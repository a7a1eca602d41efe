//! From paths to inodes, by the rules of path_resolution(7).

use std::sync::Arc;

use betrfs::{Error as VolumeError, FileType};

use crate::caller::Caller;
use crate::error::{ErrorKind, Kinded};
use crate::opened::{Found, Node, Opened};
use crate::permission::{SEARCH, may};

/// A path has fewer bytes.
const PATH_BYTES_MAX: usize = 4096;
/// The most symbolic links that are followed on the way.
const LINKS_MAX: u32 = 40;

/// Where a path begins, and who walks it.
pub(crate) struct Walker<'a> {
    pub opened: &'a Arc<Opened>,
    pub caller: &'a Caller,
    pub start: &'a Arc<Node>,
}

/// The last component of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// The path is `/`.
    Root,
    /// `.`
    Here,
    /// `..`
    Above,
    Name(Vec<u8>),
}

/// All but the last component of a path.
pub(crate) struct Parent {
    /// The directory in which the last component is.
    pub dir: Arc<Node>,
    pub last: Last,
    /// Whether slashes follow it: it is to be a directory.
    pub slash: bool,
}

/// What a path leads to.
pub(crate) enum Located {
    /// An object, with its directory and its name there, unless the path ends in `.`, `..` or `/`.
    There { found: Found, at: Option<(Arc<Node>, Vec<u8>)> },
    /// No entry of this name in this directory.
    Missing { dir: Arc<Node>, name: Vec<u8> },
}

/// What a path is walked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To use what is there.
    Use,
    /// To make a file if there is none: slashes stand behind no name of a file.
    MakeFile,
}

impl Walker<'_> {
    /// What a path leads to; a symbolic link at its end is followed if that is asked for, or if slashes stand
    /// behind it.
    pub fn locate(&self, path: &[u8], follow: bool, purpose: Purpose) -> Kinded<Located> {
        check_path(path)?;
        let mut links = 0;
        let (mut start, mut path) = (Arc::clone(self.start), path.to_vec());
        loop {
            let Parent { dir, last, slash } = self.walk(start, path, &mut links)?;
            let name = match last {
                Last::Root => return Ok(Located::There { found: self.root()?, at: None }),
                Last::Here => return Ok(Located::There { found: self.here(&dir)?, at: None }),
                Last::Above => return Ok(Located::There { found: self.above(&dir)?, at: None }),
                Last::Name(_) if slash && purpose == Purpose::MakeFile => {
                    return Err(VolumeError::IsADirectory.into());
                }
                Last::Name(name) => name,
            };
            let found = match self.child(&dir, &name) {
                Err(kind) if kind.is_missing() => return Ok(Located::Missing { dir, name }),
                found => found?,
            };
            if found.attr.file_type == FileType::Symlink && (follow || slash) {
                path = self.target(&found, &mut links)?;
                if slash {
                    path.push(b'/');
                }
                start = dir;
                continue;
            }
            if slash && !found.is_dir() {
                return Err(VolumeError::NotADirectory.into());
            }
            return Ok(Located::There { found, at: Some((dir, name)) });
        }
    }

    /// The object that a path leads to.
    pub fn find(&self, path: &[u8], follow: bool) -> Kinded<Found> {
        match self.locate(path, follow, Purpose::Use)? {
            Located::There { found, .. } => Ok(found),
            Located::Missing { .. } => Err(VolumeError::NotFound.into()),
        }
    }

    /// Walks all but the last component of a path.
    pub fn parent(&self, path: &[u8]) -> Kinded<Parent> {
        check_path(path)?;
        self.walk(Arc::clone(self.start), path.to_vec(), &mut 0)
    }

    /// Looks up a name in a directory.
    pub fn child(&self, dir: &Node, name: &[u8]) -> Kinded<Found> {
        Ok(Found::new(self.opened, self.opened.volume()?.lookup(dir.id, name)?))
    }

    /// Refuses to search a directory that the caller may not search.
    fn search(&self, dir: &Node) -> Kinded<()> {
        if self.caller.is_root() {
            return Ok(());
        }
        let attr = self.opened.volume()?.getattr(dir.id)?;
        may(self.caller, &self.opened.judged(self.caller, dir.id, attr)?, SEARCH)
    }

    fn walk(&self, start: Arc<Node>, path: Vec<u8>, links: &mut u32) -> Kinded<Parent> {
        let (mut dir, mut rest) = (start, path);
        loop {
            if rest.first() == Some(&b'/') {
                dir = self.root()?.node;
            }
            let Some((next, behind)) = self.walk_down(&mut dir, &rest, links)? else {
                return Ok(last_of(dir, &rest));
            };
            // A symbolic link: what it leads to takes its place.
            rest = [next.as_slice(), behind].concat();
        }
    }

    /// Walks down to the last component, or to a symbolic link before it: returns its target and the rest of
    /// the path.
    fn walk_down<'p>(
        &self,
        dir: &mut Arc<Node>,
        path: &'p [u8],
        links: &mut u32,
    ) -> Kinded<Option<(Vec<u8>, &'p [u8])>> {
        let mut rest = path;
        while let Some((name, behind)) = first_of(rest) {
            self.search(dir)?;
            if first_of(behind).is_none() {
                return Ok(None);
            }
            let found = match name {
                b"." => {
                    rest = behind;
                    continue;
                }
                b".." => self.above(dir)?,
                name => self.child(dir, name)?,
            };
            match found.attr.file_type {
                FileType::Directory => *dir = found.node,
                FileType::Symlink => return Ok(Some((self.target(&found, links)?, behind))),
                _ => return Err(VolumeError::NotADirectory.into()),
            }
            rest = behind;
        }
        Ok(None)
    }

    fn target(&self, link: &Found, links: &mut u32) -> Kinded<Vec<u8>> {
        *links += 1;
        if *links > LINKS_MAX {
            return Err(ErrorKind::TooManyLinks);
        }
        Ok(self.opened.volume()?.readlink(link.id())?)
    }

    pub fn root(&self) -> Kinded<Found> {
        Ok(Found::new(self.opened, self.opened.volume()?.resolve(b"/")?))
    }

    fn above(&self, dir: &Node) -> Kinded<Found> {
        Ok(Found::new(self.opened, self.opened.volume()?.parent(dir.id)?))
    }

    fn here(&self, dir: &Arc<Node>) -> Kinded<Found> {
        Ok(Found { node: Arc::clone(dir), attr: self.opened.volume()?.getattr(dir.id)? })
    }
}

/// The first component of a path, and what stands behind it, with the slash.
fn first_of(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = path.iter().position(|byte| *byte != b'/')?;
    let path = path.get(from..)?;
    let len = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    path.split_at_checked(len)
}

/// The last component of a path that is not empty, in its directory.
fn last_of(dir: Arc<Node>, path: &[u8]) -> Parent {
    let slash = path.ends_with(b"/");
    let last = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty());
    let last = match last {
        None => Last::Root,
        Some(b".") => Last::Here,
        Some(b"..") => Last::Above,
        Some(name) => Last::Name(name.to_vec()),
    };
    Parent { dir, last, slash }
}

/// Refuses what is no path.
pub(crate) fn check_path(path: &[u8]) -> Kinded<()> {
    match path {
        [] => Err(VolumeError::NotFound.into()),
        _ if path.contains(&0) => Err(VolumeError::Invalid("the path holds a 0 byte").into()),
        _ if path.len() >= PATH_BYTES_MAX => Err(VolumeError::NameTooLong.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_falls_into_components() {
        assert_eq!(first_of(b"//a/b"), Some((&b"a"[..], &b"/b"[..])));
        assert_eq!(first_of(b"a"), Some((&b"a"[..], &b""[..])));
        assert_eq!(first_of(b"a/"), Some((&b"a"[..], &b"/"[..])));
        assert_eq!((first_of(b"//"), first_of(b"")), (None, None));
    }

    #[test]
    fn paths_have_a_length_and_no_0_byte() {
        let number = |path: &[u8]| check_path(path).err().map_or(0, |kind| kind.errno().raw_os_error());
        assert_eq!((number(b""), number(b"a\0b"), number(b"\xff\n")), (2, 22, 0));
        assert_eq!((number(&[b'/'; 4095]), number(&[b'/'; 4096])), (0, 36));
    }
}
