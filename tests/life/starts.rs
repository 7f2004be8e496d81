//! Many starts under a supervisor that passes the socket, sends signals and watches: each is ready
//! when it says so, and none refuses a client.
//!
//! `PAPERBOURSE_STARTS` sets how many.

use std::net::TcpListener;
use std::time::Duration;

use paperbourse_test_support::process::Process;
use paperbourse_test_support::{Connection, Request};

use crate::activation;
use crate::supervisor::{Message, Supervisor};

const STARTS_DEFAULT: usize = 20;

/// How a server is ended: the signals, and whether the end is orderly.
const ENDS: [(&[&str], bool); 5] = [
    (&["-TERM"], true),
    (&["-INT"], true),
    (&["-HUP", "-TERM"], true),
    (&["-TERM", "-TERM"], true),
    (&["-KILL"], false),
];

#[test]
fn every_start_is_ready_when_it_says_so() {
    let starts = std::env::var("PAPERBOURSE_STARTS");
    let starts = starts.map_or(STARTS_DEFAULT, |text| text.parse().unwrap());
    let data = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    for number in 0..starts {
        let supervisor = Supervisor::in_file();
        // Whoever comes before the server has to wait, and is answered.
        let mut early = Connection::open(address);
        early.write(&Request::get("/v1/health/ready").to_bytes());
        let mut serve = activation::serve(data.path(), &[&socket], "public");
        serve.args(["--journal-segment-bytes", "1048576", "--workers", "2"]);
        serve.env("NOTIFY_SOCKET", &supervisor.address).env("WATCHDOG_USEC", "4000000");
        let process = Process::spawn(&mut serve);
        let told = supervisor.until("READY");
        let is_ready = |message: &&Message| message.contains_key("READY");
        assert_eq!(told.iter().filter(is_ready).count(), 1, "{told:?}");
        let mut late = Connection::open(address);
        late.send(&Request::get("/v1/health/ready")).ok(200);
        early.read(false).ok(200);
        supervisor.until("WATCHDOG");

        let mut server = process.ready();
        let (signals, is_orderly) = ENDS[number % ENDS.len()];
        for (index, signal) in signals.iter().enumerate() {
            server.signal(signal);
            if *signal == "-HUP" {
                let told = supervisor.until("READY");
                assert!(told.iter().any(|message| message.contains_key("RELOADING")), "{told:?}");
            } else if is_orderly && index == 0 {
                supervisor.until("STOPPING");
            }
        }
        let status = server.wait();
        assert_eq!(status.success(), is_orderly, "start {number}: {status}");
        assert_eq!(server.log_lines("hangs"), Vec::<String>::new());
        // Nothing more came than was awaited, but signs of life.
        while let Some(message) = supervisor.next_within(Duration::ZERO) {
            assert!(!message.contains_key("READY"), "start {number}: {message:?}");
        }
    }
}
