//! Starvation: threads that answer give way to all others ([`crate::sched_idle`]), and must get a CPU all the
//! same.
//!
//! Beside busy programs a thread of the policy SCHED_IDLE preempts nobody when it wakes: each request waits
//! for some milliseconds. Once it is preempted itself, which a long request nearly always is, it waits for up
//! to a second, with all locks that it holds. So a watch looks at the threads every 10 ms. The CPUs are busy
//! if one is still in the request in which the last look found it, and wants a CPU; or if the threads waited
//! long for CPUs in the last 100 ms, in all and for each request. Then all threads become ordinary ones. A
//! second after the last such finding each gives way again, with the next reply that it sends.
//!
//! A request costs two writes to memory of its thread's own; the watch sleeps while there are none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::thread::Pid;

use crate::sched_idle::{set_sched_idle, set_sched_other};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Looks without a starving thread after which threads give way again; looks without a request after which
/// the watch sleeps until there is one.
const CALM_LOOKS: u32 = 100;

/// Looks after which the time is added up that threads waited for CPUs.
const WINDOW_LOOKS: u32 = 10;
/// The CPUs are busy if threads waited for this long in a window, a quarter of its length,
const WAIT_MIN: Duration = Duration::from_millis(25);
/// and for this long for each request: more than twice what a thread saves by giving way on idle CPUs.
const WAIT_EACH_MIN: Duration = Duration::from_micros(100);

/// The thread runs as SCHED_IDLE.
const GIVES_WAY: u8 = 0;
/// The thread is an ordinary one.
const COMPETES: u8 = 1;
/// The thread is an ordinary one until it sends its next reply.
const GIVES_WAY_SOON: u8 = 2;

/// What a watch and its threads share.
struct Shared {
    threads: Mutex<Vec<Arc<Slot>>>,
    /// The watch waits to be woken by a request.
    sleeps: AtomicBool,
}

/// One thread, as the watch sees it.
struct Slot {
    thread: Pid,
    /// Twice the number of requests answered, and one more during a request.
    moments: AtomicU64,
    /// The number of moments at the last look.
    seen: AtomicU64,
    policy: AtomicU8,
    /// For the watch alone: what it knew at the end of the last window.
    window: Mutex<Window>,
}

/// The use of one thread, or of all, up to a moment or between two.
#[derive(Clone, Copy, Default)]
struct Window {
    moments: u64,
    waited: Duration,
}

impl Window {
    /// Whether threads waited so long for CPUs that these are busy with others.
    fn is_starving(self) -> bool {
        let requests = u32::try_from(self.moments.div_ceil(2)).unwrap_or(u32::MAX);
        self.waited >= WAIT_MIN && self.waited >= WAIT_EACH_MIN.saturating_mul(requests)
    }
}

/// Where threads come under a watch.
#[derive(Clone)]
pub struct Watch {
    shared: Arc<Shared>,
    wake: Sender<()>,
}

impl Watch {
    /// Starts a watch. It ends when this and all its threads are gone.
    ///
    /// # Errors
    /// The operating system's: the process may not take back that a thread gives way (RLIMIT_NICE), or no
    /// thread can be started. Then no thread should give way.
    pub fn start(name: &str) -> io::Result<Watch> {
        let (watch, woken) = Watch::new();
        let shared = Arc::clone(&watch.shared);
        let (tried, trial) = mpsc::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let allowed = set_sched_idle().and_then(|()| set_sched_other(rustix::thread::gettid()));
            let goes_on = allowed.is_ok();
            // Whoever waits for it has not given up.
            let _ = tried.send(allowed);
            if goes_on {
                run(&shared, &woken);
            }
        })?;
        trial.recv().map_err(io::Error::other)??;
        Ok(watch)
    }

    fn new() -> (Watch, Receiver<()>) {
        let (wake, woken) = mpsc::channel();
        let shared = Arc::new(Shared { threads: Mutex::default(), sleeps: AtomicBool::new(false) });
        (Watch { shared, wake }, woken)
    }

    /// Makes the calling thread one that gives way and is watched.
    ///
    /// # Errors
    /// The operating system's.
    pub fn enter(&self) -> io::Result<Watched> {
        set_sched_idle()?;
        let thread = rustix::thread::gettid();
        let slot = Arc::new(Slot {
            thread,
            moments: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            policy: AtomicU8::new(GIVES_WAY),
            window: Mutex::new(Window { moments: 0, waited: waited(thread) }),
        });
        self.shared.threads.lock().push(Arc::clone(&slot));
        Ok(Watched { slot, watch: self.clone() })
    }
}

/// A thread under a watch; for that thread alone.
pub struct Watched {
    slot: Arc<Slot>,
    watch: Watch,
}

impl Watched {
    /// A request begins.
    pub fn begins(&self) {
        self.slot.moments.fetch_add(1, SeqCst);
        // The watch first says that it sleeps, then looks once more: one of both sees the other.
        if self.watch.shared.sleeps.load(SeqCst) && self.watch.shared.sleeps.swap(false, SeqCst) {
            // A watch that ended for want of a right is not waited for.
            let _ = self.watch.wake.send(());
        }
    }

    /// The request is answered; the reply is about to be sent.
    pub fn ends(&self) {
        self.slot.moments.fetch_add(1, SeqCst);
        if self.slot.policy.load(SeqCst) == GIVES_WAY_SOON
            && self.slot.policy.compare_exchange(GIVES_WAY_SOON, GIVES_WAY, SeqCst, SeqCst).is_ok()
            && let Err(error) = set_sched_idle()
        {
            tracing::debug!("a thread does not give way again: {error}");
        }
    }
}

impl Drop for Watched {
    /// From here on the thread's number may become another's.
    fn drop(&mut self) {
        self.watch.shared.threads.lock().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

/// Looks until all threads are gone.
fn run(shared: &Shared, woken: &Receiver<()>) {
    let mut watcher = Watcher::default();
    loop {
        watcher.look(shared);
        let ended = if watcher.may_sleep() {
            shared.sleeps.store(true, SeqCst);
            watcher.look(shared);
            if watcher.may_sleep() {
                woken.recv().is_err()
            } else {
                shared.sleeps.store(false, SeqCst);
                false
            }
        } else {
            woken.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected)
        };
        if ended {
            return;
        }
    }
}

/// What a watch remembers from look to look.
#[derive(Default)]
struct Watcher {
    /// Looks since one found a request.
    looks_without_request: u32,
    /// Looks since one found a starving thread.
    looks_without_starving: u32,
    /// Looks since the last window's end.
    looks_in_window: u32,
}

impl Watcher {
    fn may_sleep(&self) -> bool {
        self.looks_without_request >= CALM_LOOKS && self.looks_without_starving >= CALM_LOOKS
    }

    /// Looks at all threads once.
    fn look(&mut self, shared: &Shared) {
        // Threads that end wait for the lock, so each number below is still its thread's.
        let threads = shared.threads.lock();
        let mut is_used = false;
        let mut starving = Vec::new();
        for slot in &*threads {
            let moments = slot.moments.load(SeqCst);
            let is_same = slot.seen.swap(moments, SeqCst) == moments;
            let is_answering = moments % 2 == 1;
            is_used |= is_answering || !is_same;
            if is_answering && is_same && wants_cpu(slot.thread) {
                starving.push(slot.thread);
            }
        }
        self.looks_in_window = self.looks_in_window.saturating_add(1) % WINDOW_LOOKS;
        let are_busy = self.looks_in_window == 0 && window(&threads).is_starving();
        self.looks_without_request = if is_used { 0 } else { self.looks_without_request.saturating_add(1) };
        if starving.is_empty() && !are_busy {
            self.looks_without_starving = self.looks_without_starving.saturating_add(1);
            if self.looks_without_starving == CALM_LOOKS {
                for slot in &*threads {
                    // It fails for those that give way.
                    let _ = slot.policy.compare_exchange(COMPETES, GIVES_WAY_SOON, SeqCst, SeqCst);
                }
            }
            return;
        }
        self.looks_without_starving = 0;
        for slot in &*threads {
            // A starving one also if it is told to compete: it may have given way again at the same moment.
            if slot.policy.swap(COMPETES, SeqCst) == COMPETES && !starving.contains(&slot.thread) {
                continue;
            }
            if let Err(error) = set_sched_other(slot.thread) {
                tracing::debug!("a thread goes on giving way: {error}");
            }
        }
    }
}

/// What the threads did since the last window's end.
fn window(threads: &[Arc<Slot>]) -> Window {
    let mut all = Window::default();
    for slot in threads {
        let mut last = slot.window.lock();
        let moments = slot.moments.load(SeqCst);
        if moments != last.moments {
            let now = Window { moments, waited: waited(slot.thread) };
            all.moments = all.moments.saturating_add(moments.wrapping_sub(last.moments));
            all.waited = all.waited.saturating_add(now.waited.saturating_sub(last.waited));
            *last = now;
        }
    }
    all
}

/// The time that a thread of this process has waited for CPUs; nothing on kernels that do not count it.
fn waited(thread: Pid) -> Duration {
    let line = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero()));
    // The time on CPUs, the time waiting for them, the number of times.
    let waited = line.ok().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

/// Whether a thread of this process runs, or waits for a CPU. If it cannot be told, it counts so.
fn wants_cpu(thread: Pid) -> bool {
    let line = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    // The state follows the name, which stands in parentheses and may have some itself.
    line.map_or(true, |line| line.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('R')))
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;
    use crate::sched_idle::policy;

    /// A thread under a watch, which does as it is told and tells its policy after each step.
    struct Told {
        tell: Sender<fn(&Watched)>,
        policies: Receiver<i32>,
        thread: Pid,
    }

    impl Told {
        fn new(watch: &Watch) -> Told {
            let watch = watch.clone();
            let (tell, told) = mpsc::channel::<fn(&Watched)>();
            let (say, policies) = mpsc::channel();
            let (say_thread, thread) = mpsc::channel();
            thread::spawn(move || {
                let watched = watch.enter().unwrap();
                say_thread.send(rustix::thread::gettid()).unwrap();
                while let Ok(step) = told.recv() {
                    step(&watched);
                    if say.send(policy(rustix::thread::gettid())).is_err() {
                        return;
                    }
                }
            });
            Told { tell, policies, thread: thread.recv().unwrap() }
        }

        /// The thread's policy after the step.
        fn does(&self, step: fn(&Watched)) -> i32 {
            self.tell.send(step).unwrap();
            self.policies.recv().unwrap()
        }
    }

    const REQUEST: fn(&Watched) = |watched| {
        watched.begins();
        watched.ends();
    };

    /// Waits until a condition holds.
    fn poll(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not after 60 s");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sets its flag when it is dropped: a thread that keeps a CPU busy ends also where a test fails.
    struct SetOnDrop<'f>(&'f AtomicBool);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }

    fn stay_on_first_cpu() {
        let allowed = sched_getaffinity(None).unwrap();
        let mut first = CpuSet::new();
        first.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
        sched_setaffinity(None, &first).unwrap();
    }

    /// Without requests, whatever the last ones waited.
    fn calm(watcher: &mut Watcher, shared: &Shared) {
        for _ in 0..CALM_LOOKS + WINDOW_LOOKS {
            watcher.look(shared);
        }
    }

    static IS_OVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_thread_that_wants_a_cpu_for_long_competes_with_all_others_until_it_is_calm() {
        let (watch, _woken) = Watch::new();
        let mut watcher = Watcher::default();
        let (busy, other) = (Told::new(&watch), Told::new(&watch));
        // One request: it ends when the test says so.
        let spin: fn(&Watched) = |watched| {
            watched.begins();
            while !IS_OVER.load(SeqCst) {
                spin_loop();
            }
            watched.ends();
        };
        let over = SetOnDrop(&IS_OVER);
        busy.tell.send(spin).unwrap();
        poll("it begins", || watch.shared.threads.lock().iter().any(|slot| slot.moments.load(SeqCst) > 0));
        watcher.look(&watch.shared);
        assert_eq!(policy(busy.thread), libc::SCHED_IDLE, "a request that began since the last look");
        // A look at a moment at which the kernel runs it or has it wait for a CPU, never asleep.
        watcher.look(&watch.shared);
        assert_eq!(policy(busy.thread), libc::SCHED_OTHER);
        assert_eq!(policy(other.thread), libc::SCHED_OTHER, "all do");
        drop(over);
        assert_eq!(busy.policies.recv().unwrap(), libc::SCHED_OTHER, "not at the next reply");
        calm(&mut watcher, &watch.shared);
        assert_eq!(policy(busy.thread), libc::SCHED_OTHER, "a thread gives way with a reply");
        assert_eq!(busy.does(REQUEST), libc::SCHED_IDLE);
        assert_eq!(other.does(REQUEST), libc::SCHED_IDLE);
    }

    /// Beside a busy program each short request waits for a CPU when its thread wakes.
    #[test]
    fn threads_that_wait_for_a_cpu_for_each_short_request_compete() {
        let (watch, _woken) = Watch::new();
        let mut watcher = Watcher::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let busy = thread::spawn(move || {
            stay_on_first_cpu();
            while !seen.load(SeqCst) {
                spin_loop();
            }
        });
        let over = SetOnDrop(&is_over);
        let served = Told::new(&watch);
        served.does(|_| stay_on_first_cpu());
        let limit = Instant::now() + Duration::from_secs(60);
        while policy(served.thread) == libc::SCHED_IDLE {
            assert!(Instant::now() < limit, "its requests wait, and nobody notices");
            for _ in 0..5 {
                served.does(REQUEST);
            }
            watcher.look(&watch.shared);
        }
        drop(over);
        busy.join().unwrap();
    }

    #[test]
    fn cpus_are_busy_if_threads_wait_long_in_all_and_for_each_request() {
        let window = |requests: u64, waited_ms| Window {
            moments: 2 * requests,
            waited: Duration::from_millis(waited_ms),
        };
        assert!(window(30, 60).is_starving());
        assert!(window(1, 25).is_starving());
        assert!(!window(1, 24).is_starving(), "one request that waited");
        assert!(!window(1000, 60).is_starving(), "many requests on idle CPUs");
        assert!(!window(0, 0).is_starving());
    }

    #[test]
    fn a_thread_that_waits_goes_on_giving_way() {
        let (watch, _woken) = Watch::new();
        let mut watcher = Watcher::default();
        let waits = Told::new(&watch);
        assert_eq!(waits.does(Watched::begins), libc::SCHED_IDLE);
        // Asleep once more: it waits for what it is told next.
        poll("it sleeps", || !wants_cpu(waits.thread));
        for _ in 0..5 {
            watcher.look(&watch.shared);
        }
        assert_eq!(policy(waits.thread), libc::SCHED_IDLE);
        assert!(!watcher.may_sleep());
    }

    #[test]
    fn short_requests_change_no_policy() {
        let (watch, _woken) = Watch::new();
        let mut watcher = Watcher::default();
        let thread = Told::new(&watch);
        // Less than a window: on busy CPUs they wait.
        for _ in 0..WINDOW_LOOKS / 2 - 1 {
            thread.does(Watched::begins);
            watcher.look(&watch.shared);
            assert_eq!(thread.does(Watched::ends), libc::SCHED_IDLE);
            watcher.look(&watch.shared);
        }
    }

    #[test]
    fn the_watch_sleeps_without_requests_and_each_first_one_wakes_it() {
        let watch = Watch::start("watch").unwrap();
        let thread = Told::new(&watch);
        for _ in 0..2 {
            poll("the watch sleeps", || watch.shared.sleeps.load(SeqCst));
            thread.does(Watched::begins);
            assert!(!watch.shared.sleeps.load(SeqCst));
            thread.does(Watched::ends);
        }
    }

    #[test]
    fn a_thread_that_ends_is_no_longer_watched() {
        let (watch, woken) = Watch::new();
        let thread = Told::new(&watch);
        assert_eq!(watch.shared.threads.lock().len(), 1);
        let Told { tell, policies, .. } = thread;
        drop(tell);
        assert!(policies.recv().is_err());
        poll("it is gone", || watch.shared.threads.lock().is_empty());
        // The watch ends with the last of them.
        drop(watch);
        assert!(woken.recv().is_err());
    }
}
