//! An HTTP server for the metrics of a mount: GET and HEAD of `/metrics`, one request a connection (RFC
//! 9112).
//!
//! A page in a browser can have the browser ask any address under a name of its own (DNS rebinding), and read
//! the answer. So the host that a request names must be an address, `localhost` or the machine's own name.
//!
//! It holds up nobody: each connection has a thread of its own and a time limit, and one connection more than
//! [`CONNECTIONS_MAX`] ends the oldest.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take for its request, and then for the answer and its end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request line with its header fields.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// What is read behind a request, so that the client gets the answer before the end of the connection.
const IGNORED_BYTES_MAX: u64 = 64 << 10;
/// How long to wait where no connection can be taken, as without descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// The media type of Prometheus' text format.
const PAGE_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// Makes the page with the metrics as they are now.
pub(crate) type Page = dyn Fn() -> String + Send + Sync;

type Connections = Mutex<VecDeque<Arc<TcpStream>>>;

/// The server; the drop ends it, with all connections.
pub(crate) struct MetricsServer {
    listener: TcpListener,
    connections: Arc<Connections>,
    is_ended: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves pages to all that connect to the listener.
    ///
    /// # Errors
    /// The operating system's: a thread is started.
    pub fn start(listener: TcpListener, page: Arc<Page>) -> io::Result<MetricsServer> {
        let connections = Arc::new(Connections::default());
        let is_ended = Arc::new(AtomicBool::new(false));
        let acceptor = {
            let (listener, connections) = (listener.try_clone()?, Arc::clone(&connections));
            let is_ended = Arc::clone(&is_ended);
            thread::Builder::new()
                .name("betrfs-metrics".into())
                .spawn(move || accept(&listener, &connections, &is_ended, &page))?
        };
        Ok(MetricsServer { listener, connections, is_ended, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        if let Err(errno) = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both) {
            tracing::debug!("the metrics' socket is not shut down: {errno}");
        }
        if let Some(acceptor) = self.acceptor.take()
            && acceptor.join().is_err()
        {
            tracing::error!("the thread that accepts connections for metrics panicked");
        }
        self.connections.lock().drain(..).for_each(|connection| end(&connection));
    }
}

fn accept(listener: &TcpListener, connections: &Arc<Connections>, is_ended: &AtomicBool, page: &Arc<Page>) {
    for stream in listener.incoming() {
        if is_ended.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            thread::sleep(PAUSE);
            continue;
        };
        let stream = Arc::new(stream);
        {
            let mut connections = connections.lock();
            if connections.len() >= CONNECTIONS_MAX
                && let Some(oldest) = connections.pop_front()
            {
                end(&oldest);
            }
            connections.push_back(Arc::clone(&stream));
        }
        let (served, all, page) = (Arc::clone(&stream), Arc::clone(connections), Arc::clone(page));
        let started = thread::Builder::new().name("betrfs-metrics".into()).spawn(move || {
            if let Err(error) = answer(&served, &*page) {
                tracing::debug!("a client of the metrics got no answer: {error}");
            }
            all.lock().retain(|other| !Arc::ptr_eq(other, &served));
        });
        if let Err(error) = started {
            tracing::debug!("no thread for a client of the metrics: {error}");
            connections.lock().retain(|other| !Arc::ptr_eq(other, &stream));
        }
    }
}

/// Ends a connection, whatever its thread waits for.
fn end(connection: &TcpStream) {
    // The client may have ended it already.
    let _ = connection.shutdown(Shutdown::Both);
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Page { has_body: bool },
    Refused { status: &'static str, allow: bool },
}

const NO_REQUEST: Reply = Reply::Refused { status: "400 Bad Request", allow: false };
const OTHER_HOST: Reply = Reply::Refused { status: "421 Misdirected Request", allow: false };
const TOO_LONG: Reply = Reply::Refused { status: "431 Request Header Fields Too Large", allow: false };

/// Answers one connection.
fn answer(stream: &TcpStream, page: &Page) -> io::Result<()> {
    let head = read_head(stream, Instant::now() + PATIENCE)?;
    let reply = head.as_deref().map_or(TOO_LONG, reply_to);
    let until = Instant::now() + PATIENCE;
    let bytes = match reply {
        Reply::Page { has_body } => {
            let page = page();
            let head = head_of("200 OK", PAGE_TYPE, page.len(), "");
            if has_body { head + &page } else { head }
        }
        Reply::Refused { status, allow } => {
            let allow = if allow { "Allow: GET, HEAD\r\n" } else { "" };
            let text = format!("{status}\n");
            head_of(status, TEXT_TYPE, text.len(), allow) + &text
        }
    };
    Timed { stream, until }.write_all(bytes.as_bytes())?;
    // If there were bytes unread at the close, the client would lose the answer.
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut Timed { stream, until }.take(IGNORED_BYTES_MAX), &mut io::sink())?;
    Ok(())
}

fn head_of(status: &str, media_type: &str, body_bytes: usize, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {body_bytes}\r\n{more}Connection: close\r\n\r\n"
    )
}

/// Reads up to the empty line behind the header fields; `None` if they are too long.
fn read_head(stream: &TcpStream, until: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut timed = Timed { stream, until };
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let count = timed.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(piece.get(..count).unwrap_or_default());
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
    }
}

/// The answer to a request with this head.
fn reply_to(head: &[u8]) -> Reply {
    // A lone line feed ends a line for some, and must not hide a field.
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let line = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let &[method, target, "HTTP/1.0" | "HTTP/1.1"] = words.as_slice() else { return NO_REQUEST };
    let hosts = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        let is_host = name.trim_ascii().eq_ignore_ascii_case(b"host");
        is_host.then(|| value.get(1..).unwrap_or_default().trim_ascii())
    });
    match hosts.collect::<Vec<_>>()[..] {
        // Every browser names it.
        [] => {}
        [host] if std::str::from_utf8(host).is_ok_and(is_own_host) => {}
        [_] => return OTHER_HOST,
        _ => return NO_REQUEST,
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (path, method) {
        ("/metrics", "GET") => Reply::Page { has_body: true },
        ("/metrics", "HEAD") => Reply::Page { has_body: false },
        ("/metrics", _) => Reply::Refused { status: "405 Method Not Allowed", allow: true },
        _ => Reply::Refused { status: "404 Not Found", allow: false },
    }
}

/// Whether the host of a request, with its port or without, is an address, `localhost` or this machine's
/// name.
fn is_own_host(host: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        let is_end = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return is_end && address.parse::<Ipv6Addr>().is_ok();
    }
    let name = match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => return false,
        None => host,
    };
    let own = rustix::system::uname();
    let own = own.nodename().to_str().is_ok_and(|own| own.eq_ignore_ascii_case(name));
    own || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// A connection whose reads and writes fail after a moment, however the client spreads its bytes.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "betrfs_info{} 1\n";

    fn server() -> (MetricsServer, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = MetricsServer::start(listener, Arc::new(|| PAGE.to_owned())).unwrap();
        let address = server.address().unwrap();
        (server, address)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_are_answered_by_method_and_path() {
        let (_server, address) = server();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: 16\r\nConnection: close\r\n\r\n";
        let get = format!("{head}{PAGE}");
        assert_eq!(asked(address, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n"), get);
        assert_eq!(asked(address, b"GET /metrics?name=x HTTP/1.0\r\n\r\n"), get);
        assert_eq!(asked(address, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), head);
        // With a body that nobody reads.
        let post = [&b"POST /metrics HTTP/1.1\r\nContent-Length: 9000\r\n\r\n"[..], &[b'x'; 9000]].concat();
        let refused = asked(address, &post);
        assert!(
            refused.starts_with("HTTP/1.1 405 ") && refused.contains("\r\nAllow: GET, HEAD\r\n"),
            "{refused}"
        );
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", "404"),
            ("POST /other HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            let told = asked(address, request.as_bytes());
            assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {told}");
            assert!(!told.contains(PAGE), "{told}");
        }
        assert_eq!(reply_to(b"\xff\xfe / HTTP/1.1\r\n\r\n"), NO_REQUEST);
    }

    /// As a page does whose name leads to this address by now.
    #[test]
    fn a_request_for_another_host_gets_no_page() {
        let (_server, address) = server();
        for host in [
            "Host: evil.example:9100",
            "host:evil.example",
            "Host: localhost.evil.example",
            "HOST: 1.2.3.4.x",
        ] {
            let told = asked(address, format!("GET /metrics HTTP/1.1\r\n{host}\r\n\r\n").as_bytes());
            assert!(told.starts_with("HTTP/1.1 421 ") && !told.contains(PAGE), "{host}: {told}");
        }
        let two = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert!(asked(address, two).starts_with("HTTP/1.1 400 "));
        let own = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        for host in ["127.0.0.1", "10.1.2.3:9100", "[::1]", "[fe80::1]:80", "LOCALHOST:1", &own] {
            assert!(is_own_host(host), "{host}");
        }
        for host in ["", "x", "localhost:", "localhost:x", "::1", "[::1", "[x]", "[::1]x", "localhost."] {
            assert!(!is_own_host(host), "{host}");
        }
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let (_server, address) = server();
        let told = asked(address, &[b'x'; HEAD_BYTES_MAX + 1]);
        assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
    }

    /// Clients that send nothing, or read nothing, are more than all threads.
    #[test]
    fn clients_that_go_no_further_hold_up_nobody() {
        let (server, address) = server();
        let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX * 3).map(|_| connect(address)).collect();
        let get = b"GET /metrics HTTP/1.1\r\n\r\n";
        assert!(asked(address, get).ends_with(PAGE));
        assert!(server.connections.lock().len() <= CONNECTIONS_MAX);
        // The first were ended for the last.
        assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
    }

    /// A byte now and then gives no more time.
    #[test]
    fn a_request_has_a_time_limit_as_a_whole() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        (&client).write_all(b"GET /me").unwrap();
        let writer = thread::spawn(move || {
            while (&client).write_all(b"e").is_ok() {
                thread::sleep(Duration::from_millis(2));
            }
        });
        let failed = read_head(&stream, Instant::now() + Duration::from_millis(200)).unwrap_err();
        let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(kinds.contains(&failed.kind()), "{failed}");
        drop(stream);
        writer.join().unwrap();
    }

    #[test]
    fn it_ends_with_its_connections_and_frees_the_port() {
        let (server, address) = server();
        let connections = Arc::clone(&server.connections);
        let silent = connect(address);
        assert!(asked(address, b"HEAD /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        drop(server);
        assert!(connections.lock().is_empty());
        assert_eq!((&silent).read(&mut [0]).unwrap(), 0);
        TcpListener::bind(address).unwrap();
    }
}
