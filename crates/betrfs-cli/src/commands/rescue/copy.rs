//! Makes the objects of a rescued volume in a directory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use betree::counted;
use betrfs::FileType;
use betrfs::rescue::{Attributes, Contents, Destination, Location, Lost, Object};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod, fchown,
    fstat, ftruncate, futimens, linkat, mkdirat, mknodat, openat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use serde::Serialize;

use super::inherited::{self, Kept};
use super::interrupt::Interrupt;
use super::later::Later;
use super::list::List;
use super::target::Target;
use crate::bar::LateBar;
use crate::failure::{Failure, Kind, Outcome};
use crate::place::itself;

/// The template of the bar.
const COPYING: &str = "copying: {msg} objects, {binary_bytes} {binary_bytes_per_sec}";
/// Data in a row is written at once up to this size, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// What was copied.
#[derive(Default, Serialize)]
pub struct Counts {
    pub objects: u64,
    /// Parts of the list.
    #[serde(skip)]
    pub missing: u64,
    /// Objects whose owners were not set.
    pub owners_left: u64,
    /// Objects whose inode flags were not set.
    pub flags_left: u64,
}

/// Number of files with several names and missing parts whose names are listed too.
const IN_PART_MAX: usize = 1_000_000;

/// See the module.
pub struct Copy {
    target: Target,
    list: List,
    later: Later,
    current: Option<Current>,
    buffer: Buffer,
    /// Files with several names of which parts are missing, the first ones met.
    in_part: HashSet<u64>,
    sets_owners: bool,
    objects: u64,
    owners_left: u64,
    flags_left: u64,
    bar: LateBar,
    /// The bytes of data that were copied.
    data_bytes: u64,
    /// Why nothing more can be copied.
    failure: Option<Failure>,
    interrupt: Interrupt,
}

/// The object that is being made.
struct Current {
    object: Object,
    open: Open,
}

/// How the system is told of an object.
enum Open {
    /// A file or a directory.
    Here(File),
    /// Anything else, which is open without an effect on it: only paths through /proc lead to it.
    Special(OwnedFd),
}

/// Data of the current file that is still to be written.
#[derive(Default)]
struct Buffer {
    offset: u64,
    bytes: Vec<u8>,
}

/// Why a step failed.
enum Failed {
    /// This object alone.
    Object(String),
    /// All that would follow.
    All(Failure),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        let error = io::Error::from(errno);
        match errno {
            Errno::NOSPC
            | Errno::DQUOT
            | Errno::IO
            | Errno::ROFS
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM => Failed::All(error.into()),
            _ => Failed::Object(error.to_string()),
        }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw_os_error(number).into(),
            None => Failed::Object(error.to_string()),
        }
    }
}

/// Why there is no directory at a path.
fn no_directory(errno: Errno) -> Failed {
    match errno {
        Errno::NOTDIR | Errno::LOOP => Failed::Object("what has the name of its directory is none".into()),
        errno => errno.into(),
    }
}

fn own_mode(file_type: FileType) -> Mode {
    if file_type == FileType::Directory { Mode::RWXU } else { Mode::RUSR | Mode::WUSR }
}

pub(super) fn mode_of(perm: u16) -> Mode {
    Mode::from_raw_mode(u32::from(perm) & 0o7777)
}

pub(super) fn times(atime_ns: i64, mtime_ns: i64) -> Timestamps {
    const NS: i64 = 1_000_000_000;
    let spec = |ns: i64| Timespec { tv_sec: ns.div_euclid(NS), tv_nsec: ns.rem_euclid(NS) };
    Timestamps { last_access: spec(atime_ns), last_modification: spec(mtime_ns) }
}

impl Copy {
    /// A copy into an empty target.
    pub fn new(target: Target, list: List, interrupt: Interrupt) -> Result<Copy, Failure> {
        let later = Later::new(&target)?;
        Ok(Copy {
            target,
            list,
            later,
            in_part: HashSet::new(),
            current: None,
            buffer: Buffer::default(),
            sets_owners: rustix::process::geteuid().is_root(),
            objects: 0,
            owners_left: 0,
            flags_left: 0,
            bar: LateBar::new(COPYING),
            data_bytes: 0,
            failure: None,
            interrupt,
        })
    }

    /// Sets what directories wait for, and names the files that got no name. Returns what was copied, also if
    /// something failed. `into` is the name of the target.
    pub fn finish(mut self, is_whole: bool, into: &impl Display) -> (Counts, Outcome) {
        let finished = if is_whole { self.finish_target() } else { Ok(()) };
        let listed = self.list.finish().map_err(Failure::from);
        let copied = match self.failure {
            Some(failure) => Err(Failure::of(
                failure.kind(),
                format!(
                    "cannot go on copying to {into}: {failure}; {} there so far, and the same command starts again \
                     and replaces what is there",
                    counted(self.objects, "object is", "objects are")
                ),
            )),
            None => Ok(()),
        };
        let counts = Counts {
            objects: self.objects,
            missing: self.list.count,
            owners_left: self.owners_left,
            flags_left: self.flags_left,
        };
        (counts, finished.and(listed).and(copied))
    }

    fn finish_target(&mut self) -> Outcome {
        // First, for it changes the times of the target.
        self.finish_linked()?;
        self.finish_directories()
    }

    fn finish_directories(&mut self) -> Result<(), Failure> {
        while let Some(entry) = self.later.pop()? {
            let set = match self.target.directory(&entry.names, &mut |_, _| ()) {
                Ok(open) => entry.set(open, self.sets_owners).map_err(Failed::from),
                Err(errno) => Err(no_directory(errno)),
            };
            let names = entry.names;
            if names.is_empty() {
                self.target.settle();
            }
            let location = if names.is_empty() { Location::Root } else { Location::Path(names) };
            match set {
                Ok(()) => {}
                Err(Failed::Object(why)) => self.list.add(&Lost::Record(location), &why)?,
                Err(Failed::All(failure)) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Removes the names that stood for files with several, where others have come.
    fn finish_linked(&mut self) -> Result<(), Failure> {
        self.target.unmark()?;
        let linked = self.target.linked();
        for entry in rustix::fs::Dir::read_from(linked)? {
            let name = entry?.file_name().to_owned();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if statat(linked, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_nlink > 1 {
                unlinkat(linked, &name, AtFlags::empty())?;
            } else {
                let names = vec![self.target.linked_name().into(), name.to_bytes().to_vec()];
                let why = "none of its names was found: it is here by its number";
                self.list.add_name(&Location::Path(names), why)?;
            }
        }
        match unlinkat(self.target.root(), self.target.linked_name(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Copy {
    /// Goes on behind a failure of one object, which is listed; ends at others.
    fn heard<T>(
        &mut self,
        result: Result<T, Failed>,
        lost: impl FnOnce() -> Lost,
    ) -> ControlFlow<(), Option<T>> {
        match result {
            Ok(done) => ControlFlow::Continue(Some(done)),
            Err(Failed::Object(why)) => {
                self.lost(&lost(), &why)?;
                ControlFlow::Continue(None)
            }
            Err(Failed::All(failure)) => {
                self.failure.get_or_insert(failure);
                ControlFlow::Break(())
            }
        }
    }

    /// The directory of an object and its name in there. Directories whose records have not come are listed.
    fn place(&mut self, location: &Location) -> Result<(OwnedFd, Vec<u8>), Failed> {
        let names = match location {
            Location::Root => return Ok((self.target.root().try_clone_to_owned()?, b".".to_vec())),
            Location::Linked(number) => {
                return Ok((self.target.linked().try_clone_to_owned()?, number.to_string().into_bytes()));
            }
            Location::Path(names) => names,
        };
        let (name, above) = names.split_last().ok_or(Errno::NOENT)?;
        self.target.give_way(names.first().unwrap_or(name))?;
        let mut made: Vec<(Vec<Vec<u8>>, Vec<Kept>)> = Vec::new();
        let open = match self.target.directory(above, &mut |names, kept| made.push((names.to_vec(), kept))) {
            Ok(open) => open.try_clone_to_owned().map_err(Failed::from),
            Err(errno) => Err(no_directory(errno)),
        };
        for (names, kept) in made {
            // The entry for snapshots has no record.
            let has_record = !names.ends_with(&[betrfs::SNAPSHOTS_NAME.to_vec()]);
            let location = Location::Path(names);
            if has_record {
                let why = "none was found, only what is below it";
                self.list.add(&Lost::Record(location.clone()), why)?;
            }
            self.list_kept(&location, kept)?;
        }
        Ok((open?, name.clone()))
    }

    /// Lists access control lists that an object has only in the target.
    fn list_kept(&mut self, of: &Location, kept: Vec<Kept>) -> io::Result<()> {
        for (kind, errno) in kept {
            let lost = Lost::Attribute { of: of.clone(), name: kind.name().to_vec() };
            self.list.add(&lost, &inherited::why(errno))?;
        }
        Ok(())
    }

    /// Makes an object without attributes, and without lists that it would inherit.
    fn make(&mut self, object: &Object) -> Result<Open, Failed> {
        let open = self.make_any(object)?;
        let kept = match &open {
            Open::Here(file) => inherited::remove(file.as_fd()),
            Open::Special(_) if object.file_type == FileType::Symlink => Vec::new(),
            Open::Special(open) => inherited::remove_special(open.as_fd()),
        };
        self.list_kept(&object.location, kept)?;
        Ok(open)
    }

    fn make_any(&mut self, object: &Object) -> Result<Open, Failed> {
        let (dir, name) = self.place(&object.location)?;
        let known = object.attributes.as_ref();
        let shown = OsStr::from_bytes(&name);
        let special = |file_type| -> Result<rustix::fs::FileType, Errno> {
            let rdev = known.map_or(0, |known| u64::from(known.rdev));
            // The kernel's encoding of 32 bits is that of the 64-bit one.
            mknodat(&dir, shown, file_type, own_mode(object.file_type), rdev)?;
            Ok(file_type)
        };
        let file_type = match object.file_type {
            FileType::Regular => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(Open::Here(openat(&dir, shown, flags, own_mode(object.file_type))?.into()));
            }
            FileType::Directory => {
                if object.location != Location::Root {
                    mkdirat(&dir, shown, own_mode(object.file_type))?;
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(Open::Here(openat(&dir, shown, flags, Mode::empty())?.into()));
            }
            FileType::Symlink => {
                let target = known.map(|known| known.target.as_slice()).unwrap_or_default();
                symlinkat(OsStr::from_bytes(target), &dir, shown)?;
                rustix::fs::FileType::Symlink
            }
            FileType::Fifo => special(rustix::fs::FileType::Fifo)?,
            FileType::Socket => special(rustix::fs::FileType::Socket)?,
            FileType::CharDevice => special(rustix::fs::FileType::CharacterDevice)?,
            FileType::BlockDevice => special(rustix::fs::FileType::BlockDevice)?,
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&dir, shown, flags, Mode::empty())?;
        let found = fstat(&open)?;
        // Where root cannot have the target for itself, its owner may have put something else there.
        if rustix::fs::FileType::from_raw_mode(found.st_mode) != file_type || found.st_nlink != 1 {
            return Err(Failed::Object("another object has got its name".into()));
        }
        Ok(Open::Special(open))
    }

    /// Shows how far it is: how much there is is not known before.
    fn show(&mut self) {
        self.bar.tell(self.data_bytes, u64::MAX);
        self.bar.say(self.objects.to_string());
    }

    fn flush(&mut self) -> Result<(), Failed> {
        if let Some(Current { open: Open::Here(file), .. }) = &self.current
            && !self.buffer.bytes.is_empty()
        {
            file.write_all_at(&self.buffer.bytes, self.buffer.offset)?;
            self.data_bytes = self.data_bytes.saturating_add(self.buffer.bytes.len() as u64);
            self.show();
        }
        self.buffer.bytes.clear();
        Ok(())
    }

    /// Sets what an object has beside its contents.
    fn set_attributes(&mut self, current: &Current, known: &Attributes) -> Result<(), Failed> {
        let owner = (Some(Uid::from_raw(known.uid)), Some(Gid::from_raw(known.gid)));
        self.flags_left += u64::from(known.flags != betrfs::InodeFlags::NONE);
        self.owners_left += u64::from(!self.sets_owners);
        let times = times(known.atime_ns, known.mtime_ns);
        match &current.open {
            Open::Here(file) => {
                if current.object.file_type == FileType::Directory {
                    let names = match &current.object.location {
                        Location::Path(names) => names.as_slice(),
                        Location::Root | Location::Linked(_) => &[],
                    };
                    return Ok(self.later.push(names, known)?);
                }
                if self.sets_owners {
                    fchown(file, owner.0, owner.1)?;
                }
                ftruncate(file, known.size)?;
                fchmod(file, mode_of(known.perm))?;
                futimens(file, &times)?;
            }
            Open::Special(open) => {
                // It leads to a symbolic link itself.
                let path = itself(open);
                if self.sets_owners {
                    chownat(CWD, path.as_str(), owner.0, owner.1, AtFlags::empty())?;
                }
                if current.object.file_type != FileType::Symlink {
                    chmodat(CWD, path.as_str(), mode_of(known.perm), AtFlags::empty())?;
                }
                utimensat(CWD, path.as_str(), &times, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// What has no room is this attribute: others keep less of them, and a file system that is full has no
    /// room for the next file either.
    fn set_xattr(current: &Current, name: &[u8], value: &[u8]) -> Result<(), Failed> {
        match Copy::try_to_set_xattr(current, name, value) {
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                Err(Failed::Object(format!("the target has no room for it: {}", io::Error::from(errno))))
            }
            set => Ok(set?),
        }
    }

    fn try_to_set_xattr(current: &Current, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let attribute = OsStr::from_bytes(name);
        match &current.open {
            Open::Here(file) => rustix::fs::fsetxattr(file, attribute, value, XattrFlags::empty())?,
            Open::Special(open) => {
                rustix::fs::setxattr(itself(open), attribute, value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    fn make_name(&mut self, location: &Location, number: u64) -> Result<(), Failed> {
        let (dir, name) = self.place(location)?;
        let from = number.to_string();
        match linkat(self.target.linked(), from.as_str(), &dir, OsStr::from_bytes(&name), AtFlags::empty()) {
            Err(Errno::NOENT) => {
                Err(Failed::Object(format!("the file that it names is lost (linked file {number})")))
            }
            linked => Ok(linked?),
        }
    }

    /// Ends the copy if the user has interrupted it.
    fn go_on(&mut self) -> ControlFlow<()> {
        if !self.interrupt.is_asked() {
            return ControlFlow::Continue(());
        }
        self.failure.get_or_insert(Failure::of(Kind::Interrupted, "it was interrupted"));
        ControlFlow::Break(())
    }

    fn was_listed(&mut self, listed: io::Result<()>) -> ControlFlow<()> {
        match listed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure.get_or_insert(error.into());
                ControlFlow::Break(())
            }
        }
    }

    fn location(&self) -> Location {
        self.current.as_ref().map_or(Location::Root, |current| current.object.location.clone())
    }
}

impl Destination for Copy {
    fn object(&mut self, object: &Object) -> ControlFlow<(), Contents> {
        self.go_on()?;
        let made = self.make(object);
        let open = self.heard(made, || Lost::Object(object.location.clone()))?;
        let Some(open) = open else { return ControlFlow::Continue(Contents::Unwanted) };
        self.objects += 1;
        self.show();
        self.current = Some(Current { object: object.clone(), open });
        ControlFlow::Continue(Contents::Wanted)
    }

    fn attribute(&mut self, name: &[u8], value: &[u8]) -> ControlFlow<()> {
        let Some(current) = &self.current else { return ControlFlow::Continue(()) };
        let set = Copy::set_xattr(current, name, value);
        let of = self.location();
        self.heard(set, || Lost::Attribute { of, name: name.to_vec() })?;
        ControlFlow::Continue(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> ControlFlow<()> {
        self.go_on()?;
        let end = self.buffer.offset.saturating_add(self.buffer.bytes.len() as u64);
        if end != offset || self.buffer.bytes.len() >= WRITE_BYTES {
            let (from, to) = (self.buffer.offset, end);
            let flushed = self.flush();
            let of = self.location();
            self.heard(flushed, || Lost::Bytes { of, from, to })?;
            self.buffer.offset = offset;
        }
        self.buffer.bytes.extend_from_slice(bytes);
        ControlFlow::Continue(())
    }

    fn end(&mut self) -> ControlFlow<()> {
        let (from, to) =
            (self.buffer.offset, self.buffer.offset.saturating_add(self.buffer.bytes.len() as u64));
        let flushed = self.flush();
        let of = self.location();
        self.heard(flushed, || Lost::Bytes { of, from, to })?;
        self.buffer.offset = 0;
        let Some(current) = self.current.take() else { return ControlFlow::Continue(()) };
        if let Some(known) = &current.object.attributes {
            let set = self.set_attributes(&current, known);
            self.heard(set, || Lost::Record(current.object.location.clone()))?;
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, location: &Location, number: u64) -> ControlFlow<()> {
        self.go_on()?;
        let made = self.make_name(location, number);
        let made = self.heard(made, || Lost::Object(location.clone()))?;
        if made.is_some() && self.in_part.contains(&number) {
            let why = format!("it leads to linked file {number}, of which parts are missing");
            let listed = self.list.add_name(location, &why);
            return self.was_listed(listed);
        }
        ControlFlow::Continue(())
    }

    fn lost(&mut self, lost: &Lost, why: &str) -> ControlFlow<()> {
        if let Lost::Record(Location::Linked(number))
        | Lost::Bytes { of: Location::Linked(number), .. }
        | Lost::Attribute { of: Location::Linked(number), .. } = lost
            && self.in_part.len() < IN_PART_MAX
        {
            self.in_part.insert(*number);
        }
        let listed = self.list.add(lost, why);
        self.was_listed(listed)
    }
}
