//! Reads and writes with a deadline.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Writes all bytes before `until`.
pub(super) fn write_until(stream: &UnixStream, bytes: &[u8], until: Instant) -> io::Result<()> {
    Timed { stream, until }.write_all(bytes)
}

/// A stream with a deadline for all its reads and writes together, however slow the other side.
pub(super) struct Timed<'a> {
    pub stream: &'a UnixStream,
    pub until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// Gives a timeout one kind: the operating system reports it as `WouldBlock`.
fn timed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        (&mut &*self.stream).read(buf).map_err(timed)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        (&mut &*self.stream).write(buf).map_err(timed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
