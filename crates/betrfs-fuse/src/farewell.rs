//! How whoever unmounts learns that the volume was closed, and how.
//!
//! An unmount is over for the kernel before the server has written out what it holds, and nothing
//! of the mount is left to ask. So the server listens on an abstract socket: who connects before
//! the unmount reads from it, after the close, one sentence, or nothing where the server died.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// What is said of a clean close.
const CLEAN: &str = "clean";

/// What is heard of a server that said nothing.
const DIED: &str = "its server ended without closing it";

/// The server's end.
pub struct Farewell {
    name: String,
    /// Who waits is in its queue until the farewell is said.
    listener: UnixListener,
}

impl Farewell {
    /// Begins to listen on an abstract socket of a name of its own.
    ///
    /// # Errors
    /// The operating system's.
    pub fn listen(unique: u64) -> io::Result<Farewell> {
        let name = format!("betrfs-{}-{unique:016x}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Farewell { name, listener })
    }

    /// The socket's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells those who wait how the volume was closed: cleanly, or why not.
    pub fn tell<E: Display>(&self, closed: &Result<(), E>) {
        let message = closed.as_ref().err().map_or_else(|| CLEAN.to_owned(), ToString::to_string);
        while let Ok((mut stream, _)) = self.listener.accept() {
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
            Ok(0) => Err(DIED.to_owned()),
            Ok(_) => Err(message),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(DIED.to_owned()),
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
