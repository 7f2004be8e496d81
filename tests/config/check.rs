//! `paperbourse check`: says whether a start would succeed, and changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use paperbourse_test_support::NOBODY;
use paperbourse_test_support::process::ServerProcess;

use super::{BINARY, in_folder};

/// What a check of these options prints, and its exit code.
fn check(folder: &Path, flags: &[&str]) -> (String, Option<i32>) {
    let words = [&["check", "--listen", "127.0.0.1:0"], flags].concat();
    let output = in_folder(folder, &words, None).output().unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// Every file below a folder, with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

/// A service that answers every request with this status until the test ends.
fn service(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]);
            let _ = write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

#[test]
fn a_new_server_would_start_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (text, code) = check(folder.path(), &["--data", "new/data"]);
    assert_eq!(code, Some(0), "{text}");
    for line in [
        "ok      data      new/data does not exist yet: the first start creates it",
        "ok      identity  the embedded issuer: the first start creates its key",
        "ok      venue     simulated",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}:\n{text}");
    }
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_stopped_server_would_start_again_and_a_running_one_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = ServerProcess::start(BINARY, &data, &["--journal-segment-bytes", "1048576"]);
    let (text, code) = check(folder.path(), &["--data", "data"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("failed  data      "), "{text}");
    let port = format!("127.0.0.1:{}", server.address.port());
    let words = ["check", "--data", "memory", "--listen", &port, "--admin-listen", &port];
    let output = in_folder(folder.path(), &words, None).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("failed  ").count(), 2, "{text}");
    assert!(text.contains("Address already in use"), "{text}");
    server.terminate();

    let before = files(folder.path());
    let (text, code) = check(folder.path(), &["--data", "data"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ok      data      data is whole up to position 0"), "{text}");
    assert!(text.contains("the embedded issuer, with its key in data"), "{text}");
    assert_eq!(files(folder.path()), before, "a check changes nothing");
}

#[test]
fn whatever_would_stop_a_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "").unwrap();
    fs::write(path("short"), "secret").unwrap();
    fs::set_permissions(path("short"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir_all(path("open/issuer")).unwrap();
    fs::set_permissions(path("open/issuer"), Permissions::from_mode(0o755)).unwrap();
    let identity = format!("oidc:http://{NOBODY}/");
    for (flags, expected) in [
        (&["--data", "file"][..], "failed  data      file is not a folder"),
        (&["--data", "open"], "failed  identity  open/issuer is open to other users (mode 0755)"),
        (&["--venue", "recorded:none"], "failed  venue     none is not a folder"),
        (&["--identity", "hs256:short", "--issuer", "i"], "failed  identity  "),
        (&["--identity", &identity, "--audience", "a"], "failed  identity  "),
        (&["--venue", "polymarket", "--venue-ca", "none.pem"], "failed  venue     --venue-ca: "),
    ] {
        let (text, code) = check(
            folder.path(),
            &[&["--data", "memory"][..], flags].concat()
                [if flags[0] == "--data" { 2 } else { 0 }..],
        );
        assert_eq!(code, Some(1), "{flags:?}: {text}");
        assert!(text.contains(expected), "{expected}:\n{text}");
        println!("{text}");
    }
}

#[test]
fn what_can_do_harm_is_a_warning_and_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["--archive-bytes", "0", "--snapshot-bytes", "0", "--journal-segment-bytes", "1M"];
    let warnings = |flags: &[&str]| -> Vec<String> {
        let (text, code) = check(folder.path(), &[&small[2..], flags].concat());
        assert_eq!(code, Some(0), "{flags:?}: {text}");
        // The folder for temporary files may be in memory.
        let lines = text.lines().filter(|line| !line.contains("is in memory (tmpfs)"));
        lines.filter(|line| line.starts_with("warning ")).map(str::to_owned).collect()
    };
    assert_eq!(warnings(&["--archive-bytes", "0", "--data", "new"]), [""; 0]);
    assert_eq!(warnings(&["--data", "memory"]), [""; 0]);
    // More than any disk has.
    let [full] = &warnings(&["--archive-bytes", "1000000T"])[..] else { panic!() };
    assert!(full.starts_with("warning data      the disk has "), "{full}");
    assert!(full.contains("make room, or lower --archive-bytes"), "{full}");
    fs::create_dir(folder.path().join("damaged")).unwrap();
    fs::write(folder.path().join("damaged/price-hours"), "nonsense").unwrap();
    let damaged = ["--archive-bytes", "0", "--data", "damaged"];
    let [hours] = &warnings(&damaged)[..] else { panic!() };
    assert!(hours.starts_with("warning data      damaged/price-hours: the file"), "{hours}");
    let open = ["--data", "memory", "--admin-listen", "0.0.0.0:0"];
    let [metrics] = &warnings(&open)[..] else { panic!() };
    assert!(metrics.starts_with("warning metrics   other machines can read"), "{metrics}");

    let check_of = |flags: &[&str]| {
        let words = [&["check", "--data", "memory", "--listen", "0.0.0.0:0"], flags].concat();
        let output = in_folder(folder.path(), &words, None).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let open = check_of(&[]);
    assert!(open.contains("\nwarning listen    other machines can reach this server"), "{open}");
    assert!(open.contains("name it with --trusted-proxy\n"), "{open}");
    let behind = check_of(&["--trusted-proxy", "10.0.0.5"]);
    assert!(!behind.contains("warning"), "{behind}");
}

#[test]
fn a_data_folder_in_memory_is_noticed() {
    const SHARED_MEMORY: &str = "/dev/shm";
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        eprintln!("SKIPPED: no {SHARED_MEMORY} in memory");
        return;
    }
    let folder = tempfile::tempdir_in(SHARED_MEMORY).unwrap();
    let (text, code) = check(folder.path(), &["--data", "new/data"]);
    assert_eq!(code, Some(0), "{text}");
    let expected = "warning data      new/data is in memory (tmpfs): ";
    assert!(text.lines().any(|line| line.starts_with(expected)), "{text}");
}

#[test]
fn every_address_of_a_live_venue_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let gamma = format!("http://{}", service("200 OK"));
    let clob = format!("http://{}", service("404 Not Found"));
    let data = format!("http://{}", service("403 Forbidden"));
    let socket = format!("ws://{NOBODY}/ws");
    let (text, code) = check(
        folder.path(),
        &[
            "--data",
            "memory",
            "--venue",
            "polymarket",
            "--venue-gamma",
            &gamma,
            "--venue-clob",
            &clob,
            "--venue-data",
            &data,
            "--venue-socket",
            &socket,
        ],
    );
    assert_eq!(code, Some(1), "{text}");
    for line in [
        format!("ok      venue     {gamma}/ answers"),
        format!("ok      venue     {clob}/ answers"),
        format!(
            "failed  venue     {data}/: the server answered with status 403 (--venue-data chooses \
             another)"
        ),
        format!("failed  venue     {socket}: "),
        "ok      venue     run `paperbourse doctor` to check".to_owned(),
    ] {
        assert!(text.lines().any(|other| other.starts_with(&line)), "{line}:\n{text}");
    }
}
