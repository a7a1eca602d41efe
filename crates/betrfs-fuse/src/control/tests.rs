use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use betree::{OnDamage, ScrubFrom, ScrubOptions, ScrubStep};
use betrfs::{QuotaLimits, Report, Scrubbed};
use rustix::process::Uid;

use super::peer::{Peer, Requires};
use super::server::{WAITING_MAX, request};
use super::sockets::{connect, may_serve, sockets};
use super::turn::Turn;
use super::*;
use crate::closing::CloseState;
use crate::file_map::MapExtent;
use crate::freeze::{End, FreezeError, Step};
use crate::layout::Layout;
use crate::mount_info::MountEntry;

/// A mount with a device number that no real mount has; each test has its own, also beside another run.
fn mount_of(number: u32) -> MountEntry {
    MountEntry {
        id: 0,
        parent_id: 0,
        device: (u32::MAX - std::process::id(), number),
        path: "/".into(),
        options: vec![format!("user_id={}", rustix::process::geteuid().as_raw()), "allow_other".into()],
        fs_type: "fuse.betrfs".into(),
        source: "/v".into(),
    }
}

/// The status of a mount whose backup ends only with its client.
const ENDLESS: &[u8] = b"endless";

/// The status of a mount that ends after some looks whether it has.
const ENDS_SOON: &[u8] = b"ends soon";

/// Whether a second client that asked for a map was refused.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a client has given up a freeze that did not come to stand still.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Whether a count ended with its client.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// A mount that is asked.
struct Asked {
    status: &'static [u8],
    is_over: bool,
    looks: AtomicU32,
}

impl Served for Asked {
    fn status(&self) -> Vec<u8> {
        self.status.to_vec()
    }

    fn is_over(&self) -> bool {
        self.is_over || self.status == ENDS_SOON && self.looks.fetch_add(1, Ordering::Relaxed) > 9
    }

    /// Has less to write at each look, once there is something.
    fn close_state(&self) -> CloseState {
        match self.looks.fetch_add(1, Ordering::Relaxed) {
            0 => CloseState::Open,
            1 => CloseState::Writing { left_bytes: 50 },
            2 => CloseState::Writing { left_bytes: 70 },
            3 => CloseState::Writing { left_bytes: 10 },
            _ => CloseState::Closed,
        }
    }

    /// Goes on until it is ended.
    fn check(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> betrfs::Result<Report> {
        while progress(1, 2).is_continue() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(betree::Error::Interrupted.into())
    }

    /// Goes on until it is ended.
    fn scrub(
        &self,
        _: ScrubOptions,
        step: &mut dyn FnMut(ScrubStep) -> ControlFlow<()>,
    ) -> betrfs::Result<Scrubbed> {
        while step(ScrubStep { bytes: 1 << 20, done_bytes: 1, all_bytes: 2 }).is_continue() {}
        Err(betree::Error::Interrupted.into())
    }

    /// Two pieces, or one after the other without an end.
    fn backup(&self, take: &mut dyn FnMut(BackupPart<'_>) -> ControlFlow<()>) -> betrfs::Result<()> {
        let mut taken = take(BackupPart::Size { volume_bytes: 1 << 20, all_bytes: 12_288 });
        let pieces = [(4096, vec![1; 8192]), (0, vec![2; 4096])];
        for (offset, bytes) in pieces.iter().take(if self.status == ENDLESS { 0 } else { 2 }) {
            if taken.is_continue() {
                taken = take(BackupPart::Piece { offset: *offset, bytes });
            }
        }
        while self.status == ENDLESS && taken.is_continue() {
            taken = take(BackupPart::Piece { offset: 0, bytes: &[0; 4096] });
        }
        if taken.is_break() { Err(betree::Error::Interrupted.into()) } else { Ok(()) }
    }

    /// As many empty cells as are asked for; 0 are refused.
    fn layout(&self, cells_max: u32) -> betrfs::Result<Layout> {
        match cells_max {
            0 => Err(betree::Error::Interrupted.into()),
            _ => Ok(Layout { cells: vec![Vec::new(); cells_max as usize], ..Layout::default() }),
        }
    }

    /// An extent with the numbers of the request. File 0 is refused; file 1 takes until another client is.
    fn map(&self, token: u64, offset: u64, len: u64) -> betrfs::Result<Vec<MapExtent>> {
        if token == 0 {
            return Err(betrfs::Error::Invalid("it is no file"));
        }
        let until = std::time::Instant::now() + ANSWER_TIME_MAX;
        while token == 1 && !IS_REFUSED.load(Ordering::Acquire) && std::time::Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        let level = token.to_string();
        Ok(vec![MapExtent {
            offset_bytes: offset,
            length_bytes: len,
            level,
            is_in_memory: false,
            is_shared: true,
            runs: Vec::new(),
        }])
    }

    /// Answers with the length of a label, and refuses a trim.
    fn carry_out(
        &self,
        order: &Order,
        _go_on: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> betrfs::Result<u64> {
        match order {
            Order::Label(label) => Ok(label.len() as u64),
            Order::Uuid(_) => Ok(0),
            Order::ResetErrors => Ok(0),
            Order::Trim => Err(betree::Error::Interrupted.into()),
            Order::Resize(NewSize::By(bytes)) => Ok(*bytes),
            Order::Resize(_) => Ok(1),
            Order::MetadataCopies(copies) => Ok((*copies).into()),
            Order::RenewMetadata => Ok(3),
            Order::Settings(_) => Ok(4),
        }
    }

    /// Counts for ever, but for what has no limit.
    fn set_quota(
        &self,
        _token: u64,
        limits: QuotaLimits,
        go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> betrfs::Result<()> {
        let mut counted = 0;
        while limits != QuotaLimits::default() {
            if go_on(counted).is_break() {
                IS_GIVEN_UP.store(true, Ordering::Release);
                return Err(betree::Error::Interrupted.into());
            }
            counted += 1;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Stands still at once; a time of 3 s is refused, and one of 4 s comes to stand still once nobody waits.
    fn freeze(
        &self,
        time: Option<Duration>,
        tell: &mut dyn FnMut(Step) -> std::io::Result<()>,
    ) -> Result<End, FreezeError> {
        tell(Step::Holds).map_err(FreezeError::Gone)?;
        match time.map(|time| time.as_secs()) {
            Some(3) => Err(FreezeError::Slow),
            Some(4) => {
                let until = std::time::Instant::now() + ANSWER_TIME_MAX;
                while !IS_LATE.load(Ordering::Acquire) && std::time::Instant::now() < until {
                    std::thread::sleep(LOOK_EVERY);
                }
                tell(Step::StandsStill(4)).map_err(FreezeError::Gone).map(|()| End::Asked)
            }
            time => tell(Step::StandsStill(time.unwrap_or(7))).map_err(FreezeError::Gone).map(|()| End::Time),
        }
    }

    /// The freezes 7 and 8 last.
    fn thaw(&self, number: Option<u64>) -> bool {
        number.is_none_or(|number| [7, 8].contains(&number))
    }

    fn await_thaw(&self) {}

    fn is_administrator(&self, _: u32) -> bool {
        true
    }

    fn is_removed_for_all(&self) -> bool {
        false
    }

    /// Mount 7 goes, others are not there.
    fn unmount(&self, number: u64) -> Result<(), String> {
        (number == 7).then_some(()).ok_or("it is elsewhere".to_owned())
    }
}

#[test]
fn an_unmount_names_its_mount_and_tells_why_it_failed() {
    let mount = MountEntry { id: 7, ..mount_of(30) };
    let served = Asked { status: b"{}", is_over: false, looks: AtomicU32::new(0) };
    let _control = Control::listen(mount.device, 1, Arc::new(served)).unwrap();
    Line::open(&mount).unwrap().unmount(&mount).unwrap();
    let other = MountEntry { id: 8, ..mount.clone() };
    let why = Line::open(&mount).unwrap().unmount(&other).unwrap_err().to_string();
    assert_eq!(why, "it is elsewhere");
}

#[test]
fn a_freeze_tells_its_number_and_a_thaw_is_heard() {
    let mount = mount_of(31);
    let asked = Asked { status: b"{}", is_over: false, looks: AtomicU32::new(0) };
    let _control = Control::listen(mount.device, 31, Arc::new(asked)).unwrap();
    let line = || Line::open(&mount).unwrap();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let wait = Duration::from_secs(10);
    assert_eq!(line().freeze(None, wait).unwrap(), 7);
    assert_eq!(line().freeze(seconds(60), wait).unwrap(), 60);
    // A part of a second is not none.
    assert_eq!(line().freeze(Some(Duration::from_millis(1)), wait).unwrap(), 1);
    let refused = line().freeze(seconds(3), wait).unwrap_err();
    assert_eq!(refused.to_string(), FreezeError::Slow.to_string());
    let late = line().freeze(seconds(4), Duration::from_millis(50));
    IS_LATE.store(true, Ordering::Release);
    let late = late.unwrap_err();
    assert!(late.to_string().contains("did not stand still"), "{late}");
    for number in [None, Some(7), Some(8)] {
        line().thaw(&mount, number).unwrap();
    }
    assert_eq!(line().thaw(&mount, Some(6)).unwrap_err().to_string(), "it is not frozen");
}

#[test]
fn orders_are_carried_out_or_refused_with_a_sentence() {
    let mount = mount_of(77);
    let _control = listen(&mount);
    let order = |order| Line::open(&mount).unwrap().order(&mount, &order, &mut |_, _| ());
    // The longest label, of characters that JSON escapes or that have several bytes.
    let label = format!("{}{}", "\"".repeat(127), "ü".repeat(64));
    assert_eq!(order(Order::Label(label)).unwrap(), 255);
    assert_eq!(order(Order::Uuid([7; 16])).unwrap(), 0);
    assert_eq!(order(Order::Resize(NewSize::By(u64::MAX))).unwrap(), u64::MAX);
    assert_eq!(order(Order::Resize(NewSize::Max)).unwrap(), 1);
    let refused = order(Order::Trim).unwrap_err().to_string();
    assert_eq!(refused, betree::Error::Interrupted.to_string());
    // What is no order is not answered.
    let mut line = Line::open(&mount).unwrap();
    line.ask("order {}\n").unwrap();
    assert!(matches!(line.status(), Err(Unheard::Refused)));
}

#[test]
fn a_client_of_a_quota_hears_how_far_the_count_is_and_ends_it_by_going() {
    let mount = mount_of(81);
    let _control = listen(&mount);
    let line = || Line::open(&mount).unwrap();
    line().set_quota(&mount, 7, QuotaLimits::default(), &mut |_| ()).unwrap();
    let limits = QuotaLimits { bytes: Some(u64::MAX), objects: None };
    let gone = std::panic::catch_unwind(|| {
        line().set_quota(&mount, 7, limits, &mut |counted| assert!(counted == 0, "heard of {counted}"))
    });
    assert!(gone.is_err());
    let until = std::time::Instant::now() + ANSWER_TIME_MAX;
    while !IS_GIVEN_UP.load(Ordering::Acquire) {
        assert!(std::time::Instant::now() < until, "it goes on");
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn a_map_is_asked_for_by_token_and_of_a_bounded_part() {
    let mount = mount_of(79);
    let _control = listen(&mount);
    let map = |token, range| Line::open(&mount).unwrap().map(&mount, token, range);
    let told = &map(u64::MAX, (5, u64::MAX)).unwrap()[0];
    assert_eq!((told.level.parse(), told.offset_bytes, told.length_bytes), (Ok(u64::MAX), 5, MAP_BYTES_MAX));
    assert!(map(0, (0, 1)).unwrap_err().to_string().contains("it is no file"));
    for request in ["map 1 2\n", "map 1 2 x\n", "map\n"] {
        let mut line = Line::open(&mount).unwrap();
        line.ask(request).unwrap();
        assert!(matches!(line.status(), Err(Unheard::Refused)), "{request}");
    }
}

#[test]
fn one_client_at_a_time_has_a_file_mapped() {
    let mount = mount_of(80);
    let _control = listen(&mount);
    let map = || {
        let told = Line::open(&mount).unwrap().map(&mount, 1, (0, 1));
        IS_REFUSED.fetch_or(told.is_err(), Ordering::AcqRel);
        told
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(map);
        (map(), other.join().unwrap())
    });
    let (told, refused) = if one.is_ok() { (one, other) } else { (other, one) };
    assert_eq!(told.unwrap().len(), 1);
    assert!(refused.unwrap_err().to_string().contains("another command maps"));
}

#[test]
fn a_layout_comes_whole_or_is_refused_with_a_sentence() {
    let mount = mount_of(78);
    let _control = listen(&mount);
    // Beyond some megabytes of cells, it comes in fewer.
    for (wanted, told) in [(1, 1), (4096, 4096), (u32::MAX, 65_536)] {
        let layout = Line::open(&mount).unwrap().layout(&mount, wanted).unwrap();
        assert_eq!(layout.cells.len(), told);
    }
    let refused = Line::open(&mount).unwrap().layout(&mount, 0).unwrap_err().to_string();
    assert_eq!(refused, betree::Error::Interrupted.to_string());
    // What is no number is not answered.
    let mut line = Line::open(&mount).unwrap();
    line.ask("layout all\n").unwrap();
    assert!(matches!(line.status(), Err(Unheard::Refused)));
}

#[test]
fn the_end_of_the_mount_is_told_to_who_checks_and_scrubs_it() {
    let options = ScrubOptions { from: ScrubFrom::Start, on_damage: OnDamage::Tell };
    let request = ScrubRequest { bytes_per_second: u64::MAX, options };
    let mount = mount_of(179);
    let control = listen_as(&mount, 7, ENDS_SOON, false);
    let line = Line::open(&mount).unwrap();
    assert!(matches!(line.check(&mount, &mut |_, _| ()), Err(CheckError::Over)));
    control.await_reports();
    assert!(!control.reported.iter().any(Turn::is_taken));
    drop(control);
    let mount = mount_of(180);
    let _control = listen_as(&mount, 7, ENDS_SOON, false);
    let line = Line::open(&mount).unwrap();
    assert!(matches!(line.scrub(&mount, request, &mut |_, _| ()), Err(CheckError::Over)));
}

fn listen_as(mount: &MountEntry, unique: u64, status: &'static [u8], is_over: bool) -> Control {
    Control::listen(mount.device, unique, Arc::new(Asked { status, is_over, looks: AtomicU32::new(0) }))
        .unwrap()
}

fn listen(mount: &MountEntry) -> Control {
    listen_as(mount, 7, b"status", false)
}

#[test]
fn waiting_clients_hear_the_outcome() {
    for (number, closed) in [(1, Ok(())), (2, Err("no space".to_owned()))] {
        let mount = mount_of(number);
        let control = listen(&mount);
        assert_eq!(Line::open(&mount).unwrap().status().unwrap(), b"status");
        let farewell = Line::open(&mount).unwrap().farewell(&mount).unwrap();
        control.tell(&closed);
        assert_eq!(farewell.wait(), closed);
    }
}

#[test]
fn the_death_of_a_server_is_an_error_of_the_farewell() {
    let mount = mount_of(3);
    let control = listen(&mount);
    let farewell = Line::open(&mount).unwrap().farewell(&mount).unwrap();
    drop(control.waiting.lock().take());
    drop(control);
    assert!(farewell.wait().unwrap_err().contains("without closing"));
}

/// More connections than the listen queue holds.
#[test]
fn a_close_is_told_in_what_is_written_of_what_is_to_be_written_until_it_is_over() {
    let mount = mount_of(0x1b);
    let _control = listen(&mount);
    let mut told = Vec::new();
    Line::open(&mount).unwrap().hear_close(&mount, &mut |done, all| told.push((done, all))).unwrap();
    assert_eq!(told, [(0, 0), (0, 50), (0, 70), (60, 70)]);
}

#[test]
fn clients_that_never_write_or_read_block_nobody() {
    let mount = mount_of(4);
    let control = listen(&mount);
    let silent: Vec<_> =
        std::iter::repeat_with(|| connect(&sockets(&mount)[0]).ok()).take(400).flatten().collect();
    assert!(silent.len() > 100, "{}", silent.len());
    // Clients that ask and do not read.
    let line = |_| Line::open(&mount).unwrap().farewell(&mount).unwrap();
    drop(silent);
    let deaf: Vec<_> = (0..2 * WAITING_MAX).map(line).collect();
    assert_eq!(control.waiting.lock().iter().count(), WAITING_MAX);
    control.tell(&Ok::<_, String>(()));
    assert_eq!(control.waiting.lock().iter().count(), 0);
    let heard = deaf.into_iter().map(Farewell::wait).filter(Result::is_ok).count();
    assert_eq!(heard, WAITING_MAX);
}

#[test]
fn only_root_and_the_owner_are_taken_for_the_server() {
    let mount = mount_of(5);
    for (peer, owner, is_believed) in [(0, 7, true), (7, 7, true), (8, 7, false), (8, 0, false)] {
        let options = vec![format!("user_id={owner}")];
        let mount = MountEntry { options, ..mount.clone() };
        assert_eq!(may_serve(Uid::from_raw(peer), &mount), is_believed, "{peer} {owner}");
    }
}

#[test]
fn a_request_ends_with_its_line_and_is_short() {
    let asked = |bytes: &[u8]| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(bytes).unwrap();
        drop(ours);
        request(&theirs)
    };
    assert_eq!(asked(b"ping\nmore").unwrap(), PING);
    assert!(asked(b"ping").is_err() && asked(b"").is_err() && asked(&[b'x'; 1000]).is_err());
}

/// The next mount gets the device number of the last.
#[test]
fn a_server_whose_mount_is_over_is_not_taken_for_the_next_mounts() {
    let mount = mount_of(6);
    let last = listen_as(&mount, 1, b"last", true);
    let next = listen_as(&mount, 2, b"next", false);
    let later = listen_as(&mount, 3, b"last", true);
    for _ in 0..4 {
        assert_eq!(Line::open(&mount).unwrap().status().unwrap(), b"next");
    }
    drop((last, next, later));
}

/// The check of this server ends only with its client.
#[test]
fn one_client_at_a_time_has_a_check_which_ends_with_it() {
    let mount = mount_of(7);
    let _control = listen(&mount);
    let begin = || {
        let mut line = Line::open(&mount).unwrap();
        line.ask(CHECK).unwrap();
        let mut answer = line.patient(&mount);
        let mut word = [0; 6];
        answer.read_exact(&mut word).unwrap();
        (word, answer)
    };
    let (word, answer) = begin();
    assert_eq!(&word, b"done 1");
    let refused = Line::open(&mount).unwrap().check(&mount, &mut |_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("another check"), "{refused}");
    drop(answer);
    // The server finds out at its next word.
    let until = std::time::Instant::now() + ANSWER_TIME_MAX;
    while &begin().0 != b"done 1" {
        assert!(std::time::Instant::now() < until, "the first check goes on");
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn a_scrub_is_made_for_one_client_at_a_time_beside_a_check() {
    let mount = mount_of(10);
    let _control = listen(&mount);
    let request = ScrubRequest { bytes_per_second: 100 << 20, options: ScrubOptions::READ_ALL };
    let mut line = Line::open(&mount).unwrap();
    line.ask("scrub 104857600 start tell\n").unwrap();
    let mut answer = line.patient(&mount);
    answer.read_exact(&mut [0; 6]).unwrap();
    let refused = Line::open(&mount).unwrap().scrub(&mount, request, &mut |_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("another scrub"), "{refused}");
    let mut checking = Line::open(&mount).unwrap();
    checking.ask(CHECK).unwrap();
    checking.patient(&mount).read_exact(&mut [0; 6]).unwrap();
}

#[test]
fn a_backup_comes_whole_piece_by_piece_and_only_to_one_client_which_may_end_it() {
    let mount = mount_of(8);
    let _control = listen(&mount);
    let mut parts = Vec::new();
    let done = Line::open(&mount).unwrap().backup(&mount, &mut |part| {
        parts.push(match part {
            BackupPart::Size { volume_bytes, all_bytes } => (volume_bytes, all_bytes, Vec::new()),
            BackupPart::Piece { offset, bytes } => (offset, bytes.len() as u64, bytes.to_vec()),
        });
        ControlFlow::Continue(())
    });
    done.unwrap();
    assert_eq!(parts, [(1 << 20, 12_288, vec![]), (4096, 8192, vec![1; 8192]), (0, 4096, vec![2; 4096])]);

    let mount = mount_of(9);
    let _control = listen_as(&mount, 7, ENDLESS, false);
    let mut second = None;
    let first = Line::open(&mount).unwrap().backup(&mount, &mut |_| {
        second = Some(Line::open(&mount).unwrap().backup(&mount, &mut |_| ControlFlow::Continue(())));
        ControlFlow::Break(())
    });
    assert!(matches!(first, Err(BackupError::Stopped)), "{first:?}");
    let second = second.unwrap().unwrap_err().to_string();
    assert!(second.contains("another backup"), "{second}");
    // The server finds out at its next piece.
    let until = std::time::Instant::now() + ANSWER_TIME_MAX;
    let begins = || {
        let mut has_begun = false;
        let _ = Line::open(&mount).unwrap().backup(&mount, &mut |_| {
            has_begun = true;
            ControlFlow::Break(())
        });
        has_begun
    };
    while !begins() {
        assert!(std::time::Instant::now() < until, "the first backup goes on");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A process that has a number by now is not the one that had it before.
#[test]
fn a_process_that_was_started_after_its_connection_is_another() {
    let served = Asked { status: b"", is_over: false, looks: AtomicU32::new(0) };
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let peer = Peer::of(&ours).unwrap();
    assert!(peer.may(Requires::Administration, &served));
    let earlier = peer.accepted_at(0);
    assert_eq!(earlier.may(Requires::Administration, &served), rustix::process::geteuid() != Uid::ROOT);
    assert!(earlier.may(Requires::Owner, &served));
}
