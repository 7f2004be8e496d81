//! The memory of an idle socket, of a whole server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::config::sources::Configuration;
use paperbourse::ids::Timestamp;
use paperbourse_test_support::PATIENCE;
use paperbourse_test_support::address::own_address;

use super::allocator::live_bytes;

/// What an idle socket with all markets of the simulated venue may take, in bytes, besides the
/// kernel's memory.
const SOCKET_BYTES_MAX: usize = 6 * 1024;

/// How many markets the venue has.
const MARKETS: usize = 22;

/// Tables have grown to hold the sockets by then.
const SOCKETS_BEFORE: usize = 40;
const SOCKETS: usize = 300;

/// Whether the server is ready.
const PROBE: &str = "GET /v1/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// The clients are sockets of the standard library, which allocate nothing.
pub(super) fn an_idle_socket_is_small() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = serve(folder.path().display().to_string());
    let issuer = EmbeddedIssuer::open(folder.path()).expect("the issuer's key is there");
    let token = issuer.mint("reader", None, 3_600, Timestamp::now()).expect("a token");
    let answer = exchange(
        address,
        &format!(
            "POST /v1/keys/bootstrap HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        ),
    );
    let key = answer.split_once(r#""raw_key":""#).and_then(|(_, rest)| rest.split_once('"'));
    let (key, _) = key.unwrap_or_else(|| panic!("no key: {answer}"));
    let request = "GET /v1/markets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let listed = exchange(address, request);
    let ids = listed.split(r#""condition_id":""#).skip(1);
    let ids: Vec<&str> = ids.map_while(|rest| Some(rest.split_once('"')?.0)).collect();
    assert_eq!(ids.len(), MARKETS);
    let open =
        |count| -> Vec<TcpStream> { (0..count).map(|_| subscribe(address, key, &ids)).collect() };
    let others = open(SOCKETS_BEFORE);
    let before = live_bytes();
    let sockets = open(SOCKETS);
    let after = live_bytes();
    assert!(after > before, "{after} bytes with more sockets, {before} before");
    let each = (after - before) / SOCKETS;
    println!("{each} bytes of an idle socket");
    assert!(each <= SOCKET_BYTES_MAX, "{each} bytes of an idle socket");
    drop((others, sockets));
}

/// Runs a server in this process until the process ends.
fn serve(data: String) -> SocketAddr {
    let address = own_address();
    let flags = [
        ("--listen", address.to_string()),
        ("--data", "memory".to_owned()),
        ("--issuer-data", data),
        ("--venue", "simulated".to_owned()),
        ("--workers", "1".to_owned()),
        ("--tier", "free=unlimited/unlimited/1000/5".to_owned()),
        ("--socket-rate", "unlimited".to_owned()),
        ("--address-limits", "off".to_owned()),
    ];
    let flags = flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    let flags: Vec<String> = flags.collect();
    let configuration = Configuration::from_flags(flags).expect("these flags");
    thread::spawn(move || paperbourse::server::run(&configuration, false).expect("it starts"));
    let deadline = Instant::now() + PATIENCE;
    // A connection to a port without a listener may be one to itself.
    while !TcpStream::connect(address).is_ok_and(|stream| stream.local_addr().ok() != Some(address))
        || !exchange(address, PROBE).starts_with("HTTP/1.1 200 ")
    {
        assert!(Instant::now() < deadline, "the server is ready");
        thread::sleep(Duration::from_millis(20));
    }
    address
}

fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in text");
    answer
}

/// A socket that has been sent the prices of these markets.
fn subscribe(address: SocketAddr, key: &str, ids: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "GET /v1/ws/prices HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it takes the request");
    read_until(&mut stream, b"\"connected\"");
    let text = format!(r#"{{"action":"subscribe","markets":["{}"]}}"#, ids.join(r#"",""#));
    let [high, low] = u16::try_from(text.len()).expect("the message is short").to_be_bytes();
    // A mask of zeros changes nothing.
    let head = [0x81, 0x80 | 0x7e, high, low, 0, 0, 0, 0];
    stream.write_all(&[&head[..], text.as_bytes()].concat()).expect("it takes the message");
    // They come in the order of the subscription.
    let last = ids.last().expect("there are some");
    read_until(&mut stream, format!(r#""type":"price","market_id":"{last}""#).as_bytes());
    stream
}

/// Reads until something was sent that contains this.
fn read_until(stream: &mut TcpStream, wanted: &[u8]) {
    let (mut received, mut len) = (vec![0; 1024 * 1024], 0);
    while !received[..len].windows(wanted.len()).any(|bytes| bytes == wanted) {
        assert!(len < received.len(), "{len} bytes came without {}", wanted.escape_ascii());
        let more = stream.read(&mut received[len..]).expect("it sends more");
        assert!(more > 0, "no {} came", wanted.escape_ascii());
        len += more;
    }
}
