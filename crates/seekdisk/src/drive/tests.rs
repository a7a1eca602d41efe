use super::*;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A drive without a clock: each step goes to the time of the next work.
struct Stepped {
    electronics: Electronics,
    now: Nanos,
    answered: Arc<Mutex<Vec<(u32, Nanos)>>>,
    clock: Arc<Mutex<Nanos>>,
}

impl Stepped {
    fn new() -> Stepped {
        Stepped {
            electronics: Electronics::default(),
            now: 0,
            answered: Arc::default(),
            clock: Arc::default(),
        }
    }

    fn ask(&mut self, name: u32, request: Request) {
        let (answered, clock) = (Arc::clone(&self.answered), Arc::clone(&self.clock));
        let answer = move || answered.lock().unwrap().push((name, *clock.lock().unwrap()));
        self.electronics.ask(self.now, request, Box::new(answer));
    }

    /// Runs until nothing more happens; returns the requests answered, with the times.
    fn settle(&mut self) -> Vec<(u32, Nanos)> {
        for _ in 0..100_000 {
            let next = self.electronics.work(self.now);
            *self.clock.lock().unwrap() = self.now;
            let answers = self.electronics.take_due(self.now);
            if answers.is_empty() {
                let Some(next) = next else { return std::mem::take(&mut self.answered.lock().unwrap()) };
                assert!(next > self.now, "it does not go on");
                self.now = next;
            }
            answers.into_iter().for_each(|answer| answer());
        }
        panic!("it never settles");
    }
}

fn order(answered: &[(u32, Nanos)]) -> Vec<u32> {
    answered.iter().map(|(name, _)| *name).collect()
}

#[test]
fn the_waiting_read_nearest_to_the_head_is_next() {
    let mut drive = Stepped::new();
    drive.ask(0, Request::Read(0..BLOCK));
    drive.electronics.work(0);
    drive.ask(1, Request::Read(900 * MIB..900 * MIB + BLOCK));
    drive.ask(2, Request::Read(BLOCK..2 * BLOCK));
    assert_eq!(order(&drive.settle()), [0, 2, 1]);
}

#[test]
fn a_write_is_answered_at_once_while_the_head_is_busy() {
    let mut drive = Stepped::new();
    drive.ask(0, Request::Read(900 * MIB..900 * MIB + BLOCK));
    drive.ask(1, Request::Write(0..BLOCK));
    let answered = drive.settle();
    assert_eq!(order(&answered), [1, 0]);
    assert!(answered[0].1 < 100_000, "{answered:?}");
    assert_eq!(drive.electronics.model.dirty_bytes(), 0, "it was idle and wrote nothing");
}

#[test]
fn a_flush_waits_for_earlier_writes_and_later_requests_wait_for_it() {
    let mut drive = Stepped::new();
    for number in 0..10 {
        drive.ask(
            number,
            Request::Write(u64::from(number) * 100 * MIB..u64::from(number) * 100 * MIB + BLOCK),
        );
    }
    drive.now = 1;
    drive.ask(100, Request::Flush);
    drive.now = 2;
    drive.ask(101, Request::Write(0..BLOCK));
    drive.ask(102, Request::Read(555 * MIB..555 * MIB + BLOCK));
    let answered = drive.settle();
    assert!(order(&answered)[..10].iter().all(|name| *name < 10), "{answered:?}");
    let at = |name| answered.iter().find(|(other, _)| *other == name).unwrap().1;
    assert!((0..10).all(|name| at(name) < 1_000_000), "{answered:?}");
    // Ten places, each with a seek and a wait for its sector.
    assert!((20_000_000..100_000_000).contains(&at(100)), "{answered:?}");
    assert!(at(101) >= at(100) && at(102) > at(100), "{answered:?}");
}

#[test]
fn a_full_cache_delays_writes_and_lets_reads_come_between() {
    let mut drive = Stepped::new();
    for number in 0..30 {
        drive.ask(number, Request::Write(u64::from(number) * MIB..u64::from(number + 1) * MIB));
    }
    drive.ask(100, Request::Read(800 * MIB..800 * MIB + BLOCK));
    let answered = drive.settle();
    assert_eq!(answered.len(), 31);
    let at = |name| answered.iter().find(|(other, _)| *other == name).unwrap().1;
    assert!(at(0) < 10_000_000 && at(29) > 80_000_000, "{answered:?}");
    assert!(at(100) < 40_000_000, "the read waits for the writes: {answered:?}");
}

#[test]
fn a_drive_at_work_answers_no_earlier_than_it_can() {
    let drive = Drive::new().unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    let start = Instant::now();
    for number in 0..10 {
        let told = told.clone();
        let at = (number * 7919 + 13) % 1000 * MIB;
        drive.ask(drive.arrival(), Request::Read(at..at + BLOCK), Box::new(move || told.send(()).unwrap()));
    }
    for _ in 0..10 {
        heard.recv_timeout(Duration::from_secs(10)).unwrap();
    }
    // At least ten short seeks, wherever the platter stands.
    assert!(start.elapsed() > Duration::from_millis(11), "{:?}", start.elapsed());
    assert_eq!((drive.counters().reads, drive.counters().read_bytes), (10, 10 * BLOCK));
}
