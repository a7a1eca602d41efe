//! A server that stands still for a while, as on a machine that sleeps.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::mounted::{Mounted, ok, run, wait_for_end};

#[test]
fn a_server_that_stood_still_goes_on_and_has_lost_nothing() {
    let mounted = Mounted::new();
    fs::write(mounted.path("before"), "1").unwrap();
    let mut open = File::create(mounted.path("open")).unwrap();
    let server = mounted.server();
    thread::scope(|scope| {
        let stopped = mounted.stop_server();
        let write = scope.spawn(|| {
            open.write_all(b"2")?;
            open.sync_all()?;
            fs::rename(mounted.path("before"), mounted.path("after"))
        });
        // A server that answers is done long before.
        thread::sleep(Duration::from_millis(300));
        assert!(!write.is_finished(), "somebody else has answered");
        drop(stopped);
        write.join().unwrap().unwrap();
    });
    drop(open);
    ok(&run(["sync".as_ref(), mounted.dir.as_os_str()]));
    kill_process(server, Signal::KILL).unwrap();
    wait_for_end(server);
    mounted.mount();
    assert_eq!(fs::read(mounted.path("after")).unwrap(), b"1");
    assert_eq!(fs::read(mounted.path("open")).unwrap(), b"2");
}
