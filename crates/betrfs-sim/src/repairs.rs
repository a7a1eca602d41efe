//! Repairs of damaged volumes: what must hold of them, whatever was lost.
//!
//! A check names what was lost. A repair ends: nothing is left to mend, or it says what is. What it leaves is
//! right, or was named; nothing comes from nowhere. It can be taken back. Once all files of a repaired volume
//! are removed, nothing of the damage is left.

use std::collections::BTreeSet;
use std::sync::Arc;

use betree::undo_repair;
use betree_platform::Device;
use betrfs::{
    Error, FileType, FlagSetter, InodeFlags, InodeId, Mending, Objects, Repair, Report, SnapshotsBelow,
    Volume,
};
use seeded::Rng;

use crate::drive::{Drive, Fault};
use crate::failure::{Failure, wrong};
use crate::model::{Body, ObjectId, ROOT, State};
use crate::setup::SUPERBLOCKS_BYTES;
use crate::tree::{Found, FoundEntry, Parts, read_volume};
use crate::world::World;

/// Tells the numbers that decide on damage and repairs from all others of a seed.
const REPAIRS_SALT: u64 = 0x7265_7061_6972_7321;
/// The most damages to one volume: mostly, and else.
const DAMAGES_MAX: [usize; 2] = [5, 40];
/// Codes of copies that are written anew, and stay so when a repair is taken back.
const COPIES: [&str; 4] = ["bad-superblock", "lost-superblocks", "bad-copy", "bad-node-copy"];
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl World {
    /// Damages the volume, whose program has ended, and repairs it.
    ///
    /// # Errors
    /// What does not hold.
    pub fn damage_and_repair(&mut self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.seed ^ REPAIRS_SALT);
        self.power_off()?;
        if rng.percent(70) {
            // What waits in the log else.
            self.volume()?.env().checkpoint().map_err(|error| Failure::Library(error.into()))?;
        }
        if let Some(client) = self.client.take() {
            client.volume().env().abandon();
        }
        self.is_over = true;
        self.is_damaged = true;
        self.disk = Arc::new(self.disk.crash(rng.next_u64()));
        let most = DAMAGES_MAX[usize::from(rng.percent(40))];
        for _ in 0..rng.between(1, most) {
            let seed = rng.next_u64();
            self.disk.set(if rng.percent(70) { Fault::Rot { seed } } else { Fault::BadBlock { seed } });
        }
        self.disk.heal();
        if rng.percent(50) {
            self.examine_damaged()?;
        }
        let mending = *rng.pick(&[Mending::Safe, Mending::All, Mending::All, Mending::AllAndLostNames]);
        self.repair(mending)
    }

    /// A copy of the disk as it is.
    fn copy(&self) -> Arc<Drive> {
        Arc::new(self.disk.crash(0))
    }

    fn examine(&self, disk: &Arc<Drive>) -> Result<Report, Error> {
        Volume::examine(device(disk), self.setup.options(&self.platform), &mut |_, _| ())
    }

    fn repair(&mut self, mending: Mending) -> Result<(), Failure> {
        let disk = self.copy();
        let examined = match self.examine(&disk) {
            Ok(examined) => examined,
            Err(error) if self.is_of_fault(&error) => Report { refused: Some(error), ..Report::default() },
            Err(error) => return wrong(format!("a check of a damaged volume: {error}")),
        };
        let options = self.setup.options(&self.platform);
        let repaired = Volume::repair(device(&disk), &options, mending, &mut |_| true, &mut |_, _| ());
        let repair = match repaired {
            Ok(repair) => repair,
            Err(error) if self.is_of_fault(&error) => {
                self.reached.note(if mending == Mending::Safe {
                    "repair: refused a safe one"
                } else {
                    "repair: refused"
                });
                return Ok(());
            }
            Err(error) => return wrong(format!("a repair ({mending:?}): {error}")),
        };
        if let Some(vain) = repair.in_vain.first() {
            return wrong(format!("a repair ({mending:?}) mends in vain: {} [{}]", vain.what, vain.code));
        }
        if examined.found() != repair.before.found() {
            self.reached.note("repair: finds another number than a check");
        }
        if repair.generation.is_none() {
            let found = repair.before.found();
            self.reached.note(match (found, repair.given_up) {
                (0, _) => "repair: nothing to mend",
                (_, 0) => "repair: nothing that it may mend",
                _ => "repair: given up",
            });
            return Ok(());
        }
        let again = self.examine(&disk).map_err(|error| told("a check of a repaired volume", &error))?;
        if codes(&again) != codes(&repair.after) {
            return wrong(format!(
                "after a repair ({mending:?}) a check finds\n    {}\n  and it said\n    {}\n  of\n    {}\n  mended\n    {}",
                in_lines(&again),
                in_lines(&repair.after),
                in_lines(&repair.before),
                mended(&repair)
            ));
        }
        self.undo(&disk, &examined)?;
        if let Some(error) = &repair.after.refused {
            self.reached.note("repair: cannot be mounted still");
            return match mending {
                Mending::Safe => Ok(()),
                _ => wrong(format!("it cannot be opened after a repair ({mending:?}): {error}")),
            };
        }
        if repair.after.found() > 0 {
            self.reached.note(if mending == Mending::Safe {
                "repair: in part, safely"
            } else {
                "repair: in part"
            });
            return Ok(());
        }
        self.reached.note("repair: whole");
        self.judge_repaired(&disk, mending, &repair, &again).map_err(|failure| match failure {
            Failure::Wrong(what) => Failure::Wrong(format!(
                "a repaired volume ({mending:?}): {what}\n  of\n    {}\n  mended\n    {}",
                in_lines(&repair.before),
                mended(&repair)
            )),
            other => other,
        })
    }

    /// Takes a repair of a copy back: a check finds what it found before.
    fn undo(&self, disk: &Arc<Drive>, before: &Report) -> Result<(), Failure> {
        let disk = Arc::new(disk.crash(0));
        match undo_repair(device(&disk)) {
            Ok(Some(_)) => {}
            Ok(None) => return wrong("a repair cannot be taken back"),
            Err(error) => return wrong(format!("taking a repair back: {error}")),
        }
        let examined = self.examine(&disk).map_err(|error| told("a check after an undo", &error))?;
        if has_lost_superblocks(before) {
            // The check was of an older checkpoint than the repair.
            return Ok(());
        }
        // Their copies are written anew.
        let others = |report: &Report| {
            let codes = codes(report).into_iter().filter(|code| !COPIES.contains(code));
            codes.collect::<Vec<_>>()
        };
        let (is, was) = (others(&examined), others(before));
        match is == was {
            true => Ok(()),
            false => {
                let (is, was) = (in_lines(&examined), in_lines(before));
                wrong(format!("after an undo a check finds\n    {is}\n  and found\n    {was}"))
            }
        }
    }

    /// Removes all files of a volume, closes and checks it.
    fn emptied(&self, disk: &Arc<Drive>, volume: Volume) -> Result<Report, Failure> {
        empty(&volume).map_err(|error| told_by("emptying a repaired volume", error))?;
        if let Err(error) = volume.close() {
            return wrong(format!("closing a repaired volume: {error}"));
        }
        self.examine(disk).map_err(|error| told("a check of what was emptied", &error))
    }

    fn judge_repaired(
        &mut self,
        disk: &Arc<Drive>,
        mending: Mending,
        repair: &Repair,
        again: &Report,
    ) -> Result<(), Failure> {
        let volume = self.setup.open(device(disk), &self.platform);
        let volume = volume.map_err(|error| told("opening a repaired volume", &error))?;
        let (found, unread) = read_volume(&volume).map_err(|(path, error)| told(&path, &error))?;
        if let Some((path, error)) = unread.iter().find(|(_, error)| !is_lost(error)) {
            return wrong(format!("{path} of a repaired volume: {error}"));
        }
        let mut named = Named::default();
        named.add(&repair.before);
        named.add(&repair.after);
        named.add(again);
        let is_older = |what: &str| what.contains("found again") || what.contains("gets the record");
        named.may_be_older = repair.mended.iter().any(|mended| is_older(&mended.what));
        named.may_lack = named.may_be_older || mending == Mending::AllAndLostNames;
        named.mended.extend(repair.mended.iter().map(|mended| mended.what.clone()));
        if mending == Mending::AllAndLostNames
            && let Some(path) = with_lost_names(&found, "")
        {
            return wrong(format!("{path}/: names are lost still, though they were given up"));
        }
        let lost_superblocks =
            repair.before.problems.iter().any(|problem| problem.code == "lost-superblocks");
        if !lost_superblocks && !named.is_cut_off {
            // A log that ends early, or cannot be replayed behind what was lost, is as old as it is.
            let log = SUPERBLOCKS_BYTES..self.setup.first_extent();
            let is_cut_short = disk.damaged_at().iter().any(|at| log.contains(at))
                || repair.before.problems.iter().any(|problem| problem.code == "bad-log");
            let mut told = Vec::new();
            let states = self.past.possible_states(is_cut_short);
            let is_one = states.iter().any(|state| match right_or_named(state, ROOT, &found, "", &named) {
                Ok(()) => true,
                Err(what) => {
                    told.push(what);
                    false
                }
            });
            if !is_one {
                let first = told.first().map(String::as_str).unwrap_or_default();
                return wrong(format!("it is none of {} states: {first}", told.len()));
            }
        }
        let mut left = self.emptied(disk, volume)?;
        if left.problems.is_empty() && !left.known_damage.is_empty() {
            // Where names may have been lost, and what these may have led to: files come to light.
            self.reached.note("repair: known damage outlives all files");
            let options = self.setup.options(&self.platform);
            Volume::repair(device(disk), &options, Mending::AllAndLostNames, &mut |_| true, &mut |_, _| ())
                .map_err(|error| told("a repair of what was emptied", &error))?;
            let volume = self.setup.open(device(disk), &self.platform);
            let volume = volume.map_err(|error| told("opening what was emptied", &error))?;
            left = self.emptied(disk, volume)?;
        }
        if let Some(problem) = left.problems.first() {
            return wrong(format!("an emptied volume, repaired before ({mending:?}): {problem}"));
        }
        // What the root itself has lost stays with it.
        let root_has_gaps = found.unread != Parts::default();
        match left.known_damage.first() {
            Some(known) if !root_has_gaps => {
                wrong(format!("in an emptied volume known damage is left ({mending:?}): {known}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether it says that something was lost.
fn is_lost(error: &Error) -> bool {
    error.is_known_damage() || matches!(error, Error::Damaged { .. })
}

fn device(disk: &Arc<Drive>) -> Arc<dyn Device> {
    Arc::clone(disk) as Arc<dyn Device>
}

fn told(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Wrong(format!("{what}: {error}"))
}

fn told_by(what: &str, (path, error): (String, Error)) -> Failure {
    Failure::Wrong(format!("{what}: {path}: {error}"))
}

fn has_lost_superblocks(report: &Report) -> bool {
    let number = |code| report.problems.iter().filter(|problem| problem.code == code).count();
    number("lost-superblocks") > 0
        || number("bad-superblock") == 4
        || report.refused.as_ref().is_some_and(|error| {
            matches!(error, Error::Engine(betree::Error::Corrupt { what: "superblock", .. }))
        })
}

/// The problems of a report, for a sentence.
fn in_lines(report: &Report) -> String {
    report.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n    ")
}

/// The changes of a repair, likewise.
fn mended(repair: &Repair) -> String {
    repair.mended.iter().map(|mended| mended.what.as_str()).collect::<Vec<_>>().join("\n    ")
}

fn codes(report: &Report) -> Vec<&'static str> {
    let mut codes: Vec<_> = report.problems.iter().map(|problem| problem.code).collect();
    codes.sort_unstable();
    // What is left lost may be told in more parts, once its node is written anew.
    codes.dedup();
    codes
}

/// The paths that reports have named.
#[derive(Default)]
struct Named {
    paths: BTreeSet<String>,
    mended: Vec<String>,
    /// Whether a report leaves files out.
    is_cut_off: bool,
    /// Whether nodes were found again without the changes that waited above them, or files got new records,
    /// as long as their blocks.
    may_be_older: bool,
    /// Whether names may be missing where nothing says so: they were given up.
    may_lack: bool,
}

impl Named {
    /// Whether something at this very path was named.
    fn tells_of(&self, path: &str) -> bool {
        self.paths.contains(path) || self.mended.iter().any(|what| what.contains(path))
    }

    fn add(&mut self, report: &Report) {
        self.paths.extend(report.files.iter().cloned());
        self.is_cut_off |= report.files_more > 0;
    }

    /// Whether something at this path, or at one above it, was named.
    fn has(&self, path: &str) -> bool {
        let mut path = path;
        loop {
            if self.paths.contains(path) || self.mended.iter().any(|what| what.contains(path)) {
                return true;
            }
            match path.rsplit_once('/') {
                Some((above, _)) if !above.is_empty() => path = above,
                _ => return self.paths.contains("/"),
            }
        }
    }
}

/// Compares what was found at a path with an object of a state: each is right, or was named.
fn right_or_named(
    state: &State,
    id: ObjectId,
    found: &Found,
    path: &str,
    named: &Named,
) -> Result<(), String> {
    let object = state.object(id);
    let shown = if path.is_empty() { "/" } else { path };
    if named.has(shown) && object.dir().is_none() {
        let wrong = object.contents().filter(|contents| {
            found.attr.file_type == FileType::Regular
                && !found.unread.bytes
                && found.bytes != contents.bytes()
        });
        return match wrong {
            Some(_) if !named.may_be_older => {
                Err(format!("{shown}: all of it can be read, and its contents are wrong"))
            }
            _ => Ok(()),
        };
    }
    if found.attr.file_type != object.file_type() {
        return if named.has(shown) {
            Ok(())
        } else {
            Err(format!("{shown}: its type is {:?}", found.attr.file_type))
        };
    }
    let is_unread = found.unread.bytes || found.unread.xattrs;
    if is_unread && !named.has(shown) {
        return Err(format!("{shown}: a part of it cannot be read, and no report names it"));
    }
    let owner = (found.attr.perm, found.attr.uid, found.attr.gid);
    if owner != (object.perm, object.uid, object.gid) && !named.has(shown) {
        return Err(format!("{shown}: its mode and owner are {owner:?}"));
    }
    match &object.body {
        Body::File(contents) if found.bytes != contents.bytes() => {
            Err(format!("{shown}: its contents are wrong ({} bytes)", found.bytes.len()))
        }
        Body::Symlink(target) if found.bytes != **target => Err(format!("{shown}: its target is wrong")),
        Body::Dir(dir) => {
            let gaps = found.unread.entries;
            entries(state, (&dir.entries, &found.entries), gaps, path, named)?;
            let path = format!("{path}/.betrfs-snapshots");
            entries(state, (&dir.snapshots, &found.snapshots), found.unread.snapshots, &path, named)
        }
        _ => Ok(()),
    }
}

type Entries = std::collections::BTreeMap<Vec<u8>, ObjectId>;

fn entries(
    state: &State,
    (right, found): (&Entries, &[FoundEntry]),
    has_gaps: bool,
    path: &str,
    named: &Named,
) -> Result<(), String> {
    let shown = if path.is_empty() { "/" } else { path };
    for (name, id) in right {
        let child = format!("{path}/{}", String::from_utf8_lossy(name));
        match found.iter().find(|entry| entry.name == *name) {
            Some(FoundEntry { found: Some(found), .. }) => right_or_named(state, *id, found, &child, named)?,
            Some(_) if named.has(&child) => {}
            Some(_) => return Err(format!("{child} cannot be read, and no report names it")),
            None if has_gaps || named.has(&child) && (named.may_lack || named.tells_of(&child)) => {}
            None if named.has(&child) => {
                return Err(format!("{child} is missing, and {shown} tells of no lost names"));
            }
            None => return Err(format!("{child} is missing, and no report names it")),
        }
    }
    let new = found.iter().find(|entry| !right.contains_key(&entry.name));
    match new.filter(|entry| !(path.is_empty() && entry.name.starts_with(LOST_AND_FOUND))) {
        Some(entry)
            if !named.has(shown)
                && !named.has(&format!("{path}/{}", String::from_utf8_lossy(&entry.name))) =>
        {
            Err(format!("{path}/{} was not there", String::from_utf8_lossy(&entry.name)))
        }
        _ => Ok(()),
    }
}

/// A directory that does not list all its names; those in snapshots do not count.
fn with_lost_names(found: &Found, path: &str) -> Option<String> {
    if found.unread.entries {
        return Some(path.to_owned());
    }
    let mut below = found.entries.iter().filter_map(|entry| Some((entry, entry.found.as_ref()?)));
    below.find_map(|(entry, found)| {
        with_lost_names(found, &format!("{path}/{}", String::from_utf8_lossy(&entry.name)))
    })
}

/// Removes everything below the root.
fn empty(volume: &Volume) -> Result<(), (String, Error)> {
    unprotect(volume, InodeId::ROOT, "")?;
    let told = |error| ("/".to_owned(), error);
    volume.remove_below(InodeId::ROOT, SnapshotsBelow::Go).map_err(told)?;
    let _ = volume.finish_removals();
    Ok(())
}

/// Takes the flags away that would keep an object below a directory.
fn unprotect(volume: &Volume, dir: InodeId, path: &str) -> Result<(), (String, Error)> {
    let told = |error| (path.to_owned(), error);
    let none = InodeFlags::NONE;
    if volume.inode_flags(dir).map_err(told)? != none {
        volume.set_inode_flags(dir, none, FlagSetter::ROOT).map_err(told)?;
    }
    let mut below = Vec::new();
    let listed = volume.readdir(dir, 0, Objects::None, &mut |entry| {
        below.push((entry.name.to_vec(), entry.file_type));
        true
    });
    match listed {
        Err(error) if !error.is_known_damage() => return Err(told(error)),
        _ => {}
    }
    for (name, file_type) in below {
        let path = format!("{path}/{}", String::from_utf8_lossy(&name));
        let Ok(entry) = volume.lookup(dir, &name) else { continue };
        let done = match file_type {
            FileType::Directory => unprotect(volume, entry.node, &path),
            _ => match volume.inode_flags(entry.node) {
                Ok(flags) if flags != none => volume
                    .set_inode_flags(entry.node, none, FlagSetter::ROOT)
                    .map_err(|error| (path.clone(), error)),
                _ => Ok(()),
            },
        };
        volume.forget(entry.node, 1);
        done?;
    }
    Ok(())
}
