//! How whoever unmounts learns that the volume was closed, and how.
//!
//! An unmount is over for the kernel before the server has written out what it holds, and nothing
//! of the mount is left to ask. So the server listens on an abstract socket: who connects before
//! the unmount reads from it, after the close, one sentence, or nothing where the server died.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

/// What is said of a clean close.
const CLEAN: &str = "clean";

/// The server's end.
pub struct Farewell {
    name: String,
    waiting: Arc<Mutex<Vec<UnixStream>>>,
}

impl Farewell {
    /// Begins to listen on an abstract socket of a name of its own.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen(unique: u64) -> io::Result<Farewell> {
        let name = format!("betrfs-{}-{unique:016x}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::clone(&waiting);
        // It ends with the process: nothing is left to tell when the farewell has been said.
        thread::Builder::new().name("betrfs-farewell".into()).spawn(move || {
            listener.incoming().map_while(Result::ok).for_each(|stream| accepted.lock().push(stream));
        })?;
        Ok(Farewell { name, waiting })
    }

    /// The socket's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells those who wait how the volume was closed: cleanly, or why not.
    pub fn tell<E: Display>(&self, closed: &Result<(), E>) {
        let message = closed.as_ref().err().map_or_else(|| CLEAN.to_owned(), ToString::to_string);
        for mut stream in self.waiting.lock().drain(..) {
            if let Err(error) = stream.write_all(message.as_bytes()) {
                tracing::debug!("nobody waits any more: {error}");
            }
        }
    }
}

/// The other end.
pub struct FarewellReader {
    stream: UnixStream,
}

impl FarewellReader {
    /// Connects to the server's end.
    ///
    /// # Errors
    /// The operating system's; the socket cannot be seen from another network namespace.
    pub fn connect(name: &str) -> io::Result<FarewellReader> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        Ok(FarewellReader { stream })
    }

    /// Waits for the close: `Ok` if it was clean, else why not.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn wait(mut self) -> Result<(), String> {
        let mut message = String::new();
        match self.stream.read_to_string(&mut message) {
            Ok(_) if message == CLEAN => Ok(()),
            Ok(0) => Err("its server ended without closing it".to_owned()),
            Ok(_) => Err(message),
            Err(error) => Err(format!("its server cannot be heard: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(unique: u64, closed: Result<(), String>) -> Result<(), String> {
        let farewell = Farewell::listen(unique).unwrap();
        let reader = FarewellReader::connect(farewell.name()).unwrap();
        while farewell.waiting.lock().is_empty() {
            thread::yield_now();
        }
        farewell.tell(&closed);
        reader.wait()
    }

    #[test]
    fn those_who_wait_hear_how_it_ended() {
        assert_eq!(told(1, Ok(())), Ok(()));
        assert_eq!(told(2, Err("no space".into())), Err("no space".into()));
    }

    #[test]
    fn a_server_that_dies_says_nothing_and_that_is_heard() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let told = FarewellReader { stream: ours }.wait();
        assert!(told.unwrap_err().contains("without closing"));
    }
}
