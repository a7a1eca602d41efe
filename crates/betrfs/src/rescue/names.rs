//! Names and records, in the order of their keys.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree::{Cut, Unreadable};

use super::{Attributes, Contents, Copying, Location, Lost, Object};
use crate::error::{Error, Result};
use crate::rules::check_looked_up;
use crate::schema::{DATA, META, Record, Stored, VolumeRecord, key, unknown};
use crate::types::{FileType, SNAPSHOTS_NAME};

/// Where the object with this own key belongs; `None` if no name of it can be made.
pub(super) fn location_of(own: &[u8]) -> Option<Location> {
    if own == key::ROOT_KEY {
        return Some(Location::Root);
    }
    if let Some(number) = key::object_id(own) {
        return Some(Location::Linked(number));
    }
    let name = |name: &[u8]| {
        // The empty component of a snapshot's path.
        let name = if name.is_empty() { SNAPSHOTS_NAME } else { name };
        check_looked_up(name).is_ok().then(|| name.to_vec())
    };
    Some(Location::Path(key::components(own)?.map(name).collect::<Option<_>>()?))
}

/// The reasons of an unreadable range, as one sentence.
pub(super) fn reasons(unreadable: &Unreadable) -> String {
    let all: Vec<String> = unreadable.errors.iter().map(ToString::to_string).collect();
    all.join("; ")
}

fn attributes(record: &Record) -> Attributes {
    Attributes {
        perm: record.perm,
        uid: record.uid,
        gid: record.gid,
        rdev: record.rdev,
        size: record.size,
        atime_ns: record.atime_ns,
        mtime_ns: record.mtime_ns,
        flags: record.rare().flags,
        target: record.target.to_vec(),
    }
}

impl Copying<'_> {
    /// Refuses a file system of another version.
    pub(super) fn volume_record(&mut self) -> Result<ControlFlow<()>> {
        let why =
            match self.op.get(META, &key::VOLUME_KEY).map(|bytes| bytes.as_deref().map(VolumeRecord::decode))
            {
                Ok(Some(Ok(_))) => return Ok(ControlFlow::Continue(())),
                Ok(Some(Err(error @ Error::NotAVolume { .. }))) => return Err(error),
                Ok(Some(Err(error))) | Err(error) => error.to_string(),
                Ok(None) => "there is none".into(),
            };
        Ok(self.to.lost(&Lost::Volume, &why))
    }

    /// All objects, and all names.
    pub(super) fn everything(&mut self) -> ControlFlow<()> {
        self.records(key::within(key::ROOT_KEY.to_vec()))?;
        self.records(key::objects())?;
        for names in key::names() {
            self.records(names)?;
        }
        ControlFlow::Continue(())
    }

    /// The records in a range of keys of `meta`.
    fn records(&mut self, (lo, hi): (Cut, Cut)) -> ControlFlow<()> {
        let mut pairs = self.op.scan(META, (lo, hi.clone()));
        loop {
            let mut stopped = ControlFlow::Continue(());
            let next = pairs.next_past(&mut |unreadable| {
                if stopped.is_continue() {
                    stopped = self.gap(&unreadable, &hi);
                }
            });
            stopped?;
            let Some((at, bytes)) = next else { return ControlFlow::Continue(()) };
            self.record(at, bytes)?;
        }
    }

    fn record(&mut self, at: &[u8], bytes: &[u8]) -> ControlFlow<()> {
        if at == key::VOLUME_KEY {
            return ControlFlow::Continue(());
        }
        let Some(location) = location_of(at) else {
            let why = match key::reserved_space(at) {
                Some(space) => unknown(at, "key of the space", space).to_string(),
                None => "nothing can have such a name".into(),
            };
            return self.to.lost(&Lost::Senseless(key::describe(at)), &why);
        };
        match Stored::decode(at, bytes) {
            Ok(Stored::Inode(record)) => self.object(at, location, &record),
            Ok(Stored::Redirect(redirect)) if matches!(location, Location::Path(_)) => {
                self.to.name(&location, redirect.oid)
            }
            Ok(Stored::Redirect(_)) => {
                self.to.lost(&Lost::Object(location), "it leads to another file, which it cannot")
            }
            Err(error) => {
                let why = error.to_string();
                if !self.by_its_data(at, location.clone(), &why)? {
                    self.to.lost(&Lost::Object(location), &why)?;
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn object(&mut self, own: &[u8], location: Location, record: &Record) -> ControlFlow<()> {
        if matches!(location, Location::Linked(_)) && record.nlink == 0 {
            // It was removed, and still open.
            return ControlFlow::Continue(());
        }
        if (location == Location::Root) != record.is_dir() && !matches!(location, Location::Path(_)) {
            return self.to.lost(&Lost::Object(location), "its record is not of its type");
        }
        let file_type = record.file_type;
        let object = Object { location, file_type, attributes: Some(attributes(record)) };
        if self.to.object(&object)? == Contents::Unwanted {
            return ControlFlow::Continue(());
        }
        self.attributes(own, &object.location, record)?;
        if file_type == FileType::Regular {
            self.blocks(own, &object.location, Some(record))?;
        }
        self.to.end()
    }

    /// Tells of names that cannot be read, up to `end`, and looks for files among them by their data.
    fn gap(&mut self, unreadable: &Unreadable, end: &Cut) -> ControlFlow<()> {
        let (lo, hi) = (unreadable.lo.clone(), unreadable.hi.clone().min(end.clone()));
        let why = reasons(unreadable);
        let (from, to) = (key::describe_cut(&lo, "the first"), key::describe_cut(&hi, "the last"));
        self.to.lost(&Lost::Names { from, to }, &why)?;
        let mut pairs = self.op.scan(DATA, (lo.clone(), hi.clone()));
        loop {
            // What cannot be read of the data belongs to these names, or to others that meet it again.
            let Some((at, _)) = pairs.next_past(&mut |_| ()) else { return ControlFlow::Continue(()) };
            let Some((own, _)) = key::split_data(at) else { continue };
            let (own, is_inside) = (own.to_vec(), !lo.is_above(own) && hi.is_above(own));
            pairs.seek(&Cut::after(key::data(&own)));
            if is_inside && let Some(location) = location_of(&own) {
                self.by_its_data(&own, location, &why)?;
            }
        }
    }

    /// Copies a file out whose record is lost, if it has any data. Returns whether it has.
    fn by_its_data(&mut self, own: &[u8], location: Location, why: &str) -> ControlFlow<(), bool> {
        let mut blocks = self.op.scan(DATA, key::blocks_from(own, 0));
        if location == Location::Root || blocks.next_past(&mut |_| ()).is_none() {
            return ControlFlow::Continue(false);
        }
        self.to.lost(&Lost::Record(location.clone()), &format!("only its data was found: {why}"))?;
        let object = Object { location, file_type: FileType::Regular, attributes: None };
        if self.to.object(&object)? == Contents::Wanted {
            self.blocks(own, &object.location, None)?;
            self.to.end()?;
        }
        ControlFlow::Continue(true)
    }
}
